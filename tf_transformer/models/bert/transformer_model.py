"""The encoder as a function, as in the notes.

Axes: B batch, F length of the queries, T length of the keys (the same), D hidden size.
"""

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import gelu
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.bert_encoder import BertEncoder
from tf_transformer.models.bert.notes_call import as_tensor, unique_name


def transformer_model(
    input_tensor,
    attention_mask=None,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    intermediate_act_fn=gelu,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    initializer_range=0.02,
    do_return_all_layers=False,
):
    """Create BERT layers and apply them to a tensor.

    "Attention Is All You Need", section 3.1, with BERT's GELU, dropout and epsilon of 1e-12.
    Computed on a matrix (B * T, D); only attention reshapes it to a batch.

    Args:
        input_tensor: float tensor (B, T, D) or `keras.Input`.
        attention_mask: None, or an integer tensor (B, F, T): 1 = token F may attend to token T, 0 =
            -10000.0 is added to the score.
        hidden_size: int, D, must be a multiple of `num_attention_heads`.
        num_hidden_layers, num_attention_heads, intermediate_size: int.
        intermediate_act_fn: function, or a name of `functional.activations`, or None for none.
        hidden_dropout_prob: float in [0, 1), dropout rate on the output of each sublayer.
        attention_probs_dropout_prob: float in [0, 1), dropout rate of attention weights.
        initializer_range: float, standard deviation for initializing kernels.
        do_return_all_layers: bool, True returns the output of every layer.

    Keras masks: padding of `input_tensor` is blocked, and its mask passed on.

    Returns:
        (B, T, D), or the list of the outputs of all layers in order.

    Raises:
        ValueError: If `hidden_size` is not a multiple of `num_attention_heads`, the input is not a
            float tensor of rank 3 and width `hidden_size`, or the mask is float.

    Differs from the notes: dropout is only applied in training (in `fit`, or if the resulting Keras
    model is called with `training=True`); a float mask is rejected, since everywhere else in this
    library a float 1.0 means blocked.

    Example:
        >>> x = keras.Input((20, 32))
        >>> model = keras.Model(x, transformer_model(x, None, 32, 2, 4, 64))
        >>> model(tf.ones((8, 20, 32))).shape.as_list()
        [8, 20, 32]
    """
    input_tensor = as_tensor(input_tensor, "input_tensor")
    if len(input_tensor.shape) != 3:
        raise ArgumentError(
            "input_tensor", "rank 3, (batch, length, width)", f"shape {tuple(input_tensor.shape)}"
        )
    config = BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        intermediate_size=intermediate_size,
        hidden_act="linear" if intermediate_act_fn is None else intermediate_act_fn,
        hidden_dropout_prob=hidden_dropout_prob,
        attention_probs_dropout_prob=attention_probs_dropout_prob,
        initializer_range=initializer_range,
    )
    outputs = BertEncoder(config, name=unique_name("encoder"))(input_tensor, attention_mask)
    return outputs if do_return_all_layers else outputs[-1]
