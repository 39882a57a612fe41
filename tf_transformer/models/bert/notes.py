"""BERT under the notes' names: two functions, `BERTSelfAttention` and `BERTLayerNorm`.

Axes: B batch, F length of the queries ("from"), T length of the keys ("to"), N heads, H head width,
D hidden size.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.activations import gelu
from tf_transformer.functional.attention.masks import additive_mask, with_key_masks
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.models.bert.attention import BertAttention
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.encoder import BertEncoder


@keras.saving.register_keras_serializable(package="tf_transformer")
class BERTSelfAttention(BertAttention):
    """softmax(Q K^T / sqrt(H) + attention_mask) V in each head, heads concatenated.

    Devlin et al. 2019, section 3.

    Args:
        config: `BertConfig`, or its dict.
        num_heads: None for the config's; or int, N, with the head width of the config.

    Call arguments:
        hidden_states: float tensor (B, T, D).
        attention_mask: None, or a float tensor that broadcasts to the scores (B, N, T, T) and is
            added to them: 0.0 = may attend, -10000.0 = blocked; see `additive_mask`.
        training: bool or None; dropout is only applied if true.
        hidden_states_mask: None, or bool tensor (B, T), False for padding; see `EncoderLayer`.

    Raises:
        ValueError: If the input has another rank or width, or the mask is not float.

    Example:
        >>> layer = BERTSelfAttention(BertConfig(hidden_size=8, num_attention_heads=2))
        >>> layer(tf.ones((1, 3, 8)), tf.constant([[[[0.0, 0.0, -10000.0]]]])).shape.as_list()
        [1, 3, 8]
    """

    def __init__(self, config, *, num_heads=None, **kwargs):
        config = BertConfig.of(config)
        super().__init__(
            num_heads or config.num_attention_heads,
            config.head_size,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
            initializer_range=config.initializer_range,
            **kwargs,
        )
        self.config = config

    def build(self, hidden_states_shape):
        if hidden_states_shape[-1] != self.config.hidden_size:
            expected = f"(batch, length, {self.config.hidden_size})"
            raise ArgumentError("hidden_states", expected, f"shape {tuple(hidden_states_shape)}")
        super().build(hidden_states_shape, hidden_states_shape)

    def call(self, hidden_states, attention_mask=None, training=None, *, hidden_states_mask=None):
        got = f"shape {tuple(hidden_states.shape)}"
        check(len(hidden_states.shape) == 3, "hidden_states", "(batch, length, width)", got)
        if attention_mask is not None and not attention_mask.dtype.is_floating:
            got, remedy = attention_mask.dtype.name, "Pass additive_mask(attention_mask)."
            raise ArgumentError("attention_mask", "floats to add to the scores", got, remedy)
        mask = with_key_masks(None, hidden_states, hidden_states_mask)
        return self.attend_batch(hidden_states, hidden_states, mask, attention_mask, training)

    def get_config(self):
        # The config replaces the arguments of `BertAttention`.
        own = {"config": self.config.to_dict(), "num_heads": self.num_attention_heads}
        return {**keras.layers.Layer.get_config(self), **own}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BERTLayerNorm(LayerNorm):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta over the last axis.

    Same as `layers.LayerNorm`, with BERT's epsilon; an input (..., D) of another width than the
    config's raises a ValueError.

    Args:
        config: `BertConfig`, or its dict; `hidden_size` is used.
        variance_epsilon: float, added to the variance.

    Example:
        >>> norm = BERTLayerNorm(BertConfig(hidden_size=2, num_attention_heads=1))
        >>> norm(tf.constant([[1.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(self, config, variance_epsilon=1e-12, **kwargs):
        super().__init__(variance_epsilon, **kwargs)
        self.config = BertConfig.of(config)

    def build(self, input_shape):
        if input_shape[-1] != self.config.hidden_size:
            expected = f"width {self.config.hidden_size} (hidden_size of the config)"
            raise ArgumentError("inputs", expected, f"shape {tuple(input_shape)}")
        super().build(input_shape)

    def get_config(self):
        config = super().get_config()
        epsilon = config.pop("epsilon")
        return {**config, "config": self.config.to_dict(), "variance_epsilon": epsilon}


def unique_name(name):
    """Return an unused layer name: a Keras model requires unique names."""
    number = keras.backend.get_uid(name) - 1
    return f"{name}_{number}" if number else name


def as_tensor(values, name="from_tensor, to_tensor"):
    """Convert values to a float tensor; a `keras.Input` is returned unchanged."""
    values = values if keras.backend.is_keras_tensor(values) else tf.convert_to_tensor(values)
    check(tf.as_dtype(values.dtype).is_floating, name, "floats", tf.as_dtype(values.dtype).name)
    return values


def attention_layer(
    from_tensor,
    to_tensor,
    attention_mask=None,
    num_attention_heads=1,
    size_per_head=512,
    query_act=None,
    key_act=None,
    value_act=None,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.02,
    do_return_2d_tensor=False,
    batch_size=None,
    from_seq_length=None,
    to_seq_length=None,
):
    """Create multi-head attention and apply it from one tensor to another.

    softmax(Q K^T / sqrt(H) + (1 - attention_mask) * -10000) V in each head, "Attention Is All You
    Need", section 3.2.2, without an output projection. Padding of `to_tensor` by its Keras mask is
    blocked; the output inherits the mask of `from_tensor`.

    Args:
        from_tensor: float tensor (B, F, width) or (B * F, width), or `keras.Input`.
        to_tensor: float tensor (B, T, width) or (B * T, width).
        attention_mask: None, or an integer tensor (B, F, T), 1 = may attend.
        num_attention_heads, size_per_head: int, N and H.
        query_act, key_act, value_act: None, functions, or names of `functional.activations`.
        attention_probs_dropout_prob: float in [0, 1), dropout of attention weights.
        initializer_range: float, standard deviation of new kernels.
        do_return_2d_tensor: bool, True returns a matrix.
        batch_size, from_seq_length, to_seq_length: int, B, F and T; required for matrices.

    Returns:
        (B, F, N * H), or (B * F, N * H) with `do_return_2d_tensor`.

    Raises:
        ValueError: If the ranks of the two tensors differ or are neither 2 nor 3, lengths are
            missing or do not match, an input is an integer tensor, or the mask is float.

    Differs from the notes: dropout is only applied in training; a float mask is rejected.

    Example:
        >>> attention_layer(tf.ones((2, 3, 8)), tf.ones((2, 5, 8)), None, 2, 4).shape.as_list()
        [2, 3, 8]
    """
    from_tensor, to_tensor = as_tensor(from_tensor), as_tensor(to_tensor)
    rank = len(from_tensor.shape)
    if rank != len(to_tensor.shape) or rank not in (2, 3):
        got = f"shapes {tuple(from_tensor.shape)} and {tuple(to_tensor.shape)}"
        raise ArgumentError("from_tensor, to_tensor", "the same rank, 2 or 3", got)
    lengths = (batch_size, from_seq_length, to_seq_length)
    if rank == 2:
        names = "batch_size, from_seq_length, to_seq_length"
        check(None not in lengths, names, "all three, since from_tensor is a matrix", lengths)
        sides = (("from", from_tensor, from_seq_length), ("to", to_tensor, to_seq_length))
        for side, tensor, length in sides:
            rows, got = batch_size * length, f"shape {tuple(tensor.shape)}"
            expected = f"{batch_size} * {length} rows (batch_size, {side}_seq_length)"
            check(tensor.shape[0] in (None, rows), f"{side}_tensor", expected, got)
    elif not tf.TensorShape(from_tensor.shape[:1]).is_compatible_with(to_tensor.shape[:1]):
        expected = f"the batch size of from_tensor, {from_tensor.shape[0]}"
        raise ArgumentError("to_tensor", expected, f"shape {tuple(to_tensor.shape)}")
    layer = _Attention(
        num_attention_heads,
        size_per_head,
        query_act=query_act,
        key_act=key_act,
        value_act=value_act,
        attention_probs_dropout_prob=attention_probs_dropout_prob,
        initializer_range=initializer_range,
        lengths=lengths if rank == 2 else None,
        do_return_2d_tensor=do_return_2d_tensor,
        name=unique_name("self"),
    )
    return layer(from_tensor, to_tensor, attention_mask)


@keras.saving.register_keras_serializable(package="tf_transformer")
class _Attention(BertAttention):
    """The layer behind `attention_layer`, so that it can be part of a Keras model."""

    def __init__(self, *args, lengths, do_return_2d_tensor, **kwargs):
        super().__init__(*args, **kwargs)
        self.lengths = lengths
        self.do_return_2d_tensor = do_return_2d_tensor

    def call(
        self, from_tensor, to_tensor, attention_mask=None, training=None, *, to_tensor_mask=None
    ):
        mask = with_key_masks(None, to_tensor, to_tensor_mask)  # (B, 1, T) or (1, B * T)
        bias = None if attention_mask is None else additive_mask(attention_mask)
        if self.lengths is not None:
            batch, queries, keys = self.lengths
            from_tensor = tf.reshape(from_tensor, (batch, queries, from_tensor.shape[-1]))
            to_tensor = tf.reshape(to_tensor, (batch, keys, to_tensor.shape[-1]))
            mask = mask if mask is None else tf.reshape(mask, (batch, 1, keys))
        output = self.attend_batch(from_tensor, to_tensor, mask, bias, training)
        return tf.reshape(output, (-1, output.shape[-1])) if self.do_return_2d_tensor else output

    def compute_mask(self, inputs, previous_mask=None):
        """The Keras mask of `from_tensor`, if the output has its axes."""
        if self.do_return_2d_tensor != (self.lengths is not None):
            return None
        return super().compute_mask(inputs, previous_mask)

    def get_config(self):
        own = {"lengths": self.lengths, "do_return_2d_tensor": self.do_return_2d_tensor}
        return {**super().get_config(), **own}


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
    Padding of `input_tensor` by its Keras mask is blocked, and the output inherits the mask.

    Args:
        input_tensor: float tensor (B, T, D) or `keras.Input`.
        attention_mask: None, or an integer tensor (B, F, T): 1 = token F may attend to token T; for
            0, -10000.0 is added to the score.
        intermediate_act_fn: function, or a name of `functional.activations`, or None for none.
        hidden_size, ..., initializer_range: see `BertConfig`.
        do_return_all_layers: bool, True returns the output of every layer.

    Returns:
        (B, T, D), or the list of the outputs of all layers in order.

    Raises:
        ValueError: If `hidden_size` is not a multiple of `num_attention_heads`, the input is not a
            float tensor of rank 3 and width `hidden_size`, or the mask is float.

    Differs from the notes: dropout is only applied in training; a float mask is rejected.

    Example:
        >>> x = keras.Input((20, 32))
        >>> model = keras.Model(x, transformer_model(x, None, 32, 2, 4, 64))
        >>> model(tf.ones((8, 20, 32))).shape.as_list()
        [8, 20, 32]
    """
    input_tensor = as_tensor(input_tensor, "input_tensor")
    got = f"shape {tuple(input_tensor.shape)}"
    check(len(input_tensor.shape) == 3, "input_tensor", "rank 3, (batch, length, width)", got)
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
