"""The BERT model, and where its parameters are.

Axes: B batch, T length, N heads, D hidden size, L layers, M tokens.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.ids import asserted
from tf_transformer.functional.tracing import in_xla_program, portable_positions
from tf_transformer.models.bert.encoder import BertEmbeddings, BertEncoder
from tf_transformer.models.bert.pretrained_bert import PretrainedBert, dense_inputs
from tf_transformer.models.bert.token_layout import packed_layout, padded_layout, tokens_in


@keras.saving.register_keras_serializable(package="tf_transformer")
class Bert(PretrainedBert):
    """Encoder that maps token ids to one vector per token and one for the whole text.

    Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", section 3. Its
    variables have the names used in the published TensorFlow checkpoints, under "bert/".

    Args:
        config: `BertConfig`, or its dict.
        unpad: bool, True skips padding, which saves the time spent on it; the output for padding
            is then 0. It only takes effect if the mask has rank 2, and not in a program that XLA
            compiles, whose shapes are fixed.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        architecture: None for that of BERT, or an `Architecture`. Its parts replace the positions
            of `BertEmbeddings`, all normalizations up to the last layer, and what is in a layer;
            `hidden_act` and `layer_norm_eps` then only concern heads, and only positions that have
            a limit limit T.

    Call arguments:
        inputs: dict of integer tensors, see `as_ids` for what else is taken:
            input_ids (B, T);
            token_type_ids (B, T), the segment of each token; zeros if missing;
            attention_mask, 1 = may attend: (B, T), which tokens are not padding; (B, T, T), which
            token (axis 1) attends to which (axis 2); or (B, 1 or N, T, T). All ones if missing,
            even if input_ids are padded. Bool masks mean the same.
            If input_ids are ragged, nothing attends beyond the end of a row, whatever the mask.
        training: bool or None; dropout is only applied if true.
        return_hidden_states, return_attentions: bool.

    Returns:
        dict: `sequence_output` (B, T, D); `pooled_output` (B, D), tanh(first token W + b), if the
        model has a pooler; on request `hidden_states`, a list of L + 1 tensors (B, T, D)
        that starts with the input of the first layer, and `attentions`, L tensors (B, N, T, T). If
        the architecture has a final norm (`PreNorm`), the last hidden state is normalized by it.

    Raises:
        ValueError: If an input is unknown or missing, the mask is float, shapes do not match, an id
            is out of range, or T is larger than `max_position_embeddings`; see `BertEmbeddings` for
            graphs.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = Bert(BertConfig(13, 8, 2, 2, 16, max_position_embeddings=5))
        >>> outputs = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> outputs["sequence_output"].shape.as_list(), outputs["pooled_output"].shape.as_list()
        ([1, 3, 8], [1, 8])
    """

    published_as = "BertModel"
    pooler_use = "optional"

    def __init__(
        self, config, *, unpad=False, jit="auto", architecture=None, name="bert", **kwargs
    ):
        super().__init__(
            config, unpad=unpad, jit=jit, architecture=architecture, name=name, **kwargs
        )
        config = self.config
        dtype = self.dtype_policy
        parts = {"architecture": architecture, "dtype": dtype}
        self.embeddings = BertEmbeddings(config, name="embeddings", **parts)
        self.encoder = BertEncoder(config, jit=jit, name="encoder", **parts)
        self.pooler_dense = None
        if config.pooler_activation is not None:
            self.pooler_dense = keras.layers.Dense(
                config.hidden_size,
                get_activation(config.pooler_activation),
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=config.initializer_range
                ),
                name="dense",
                dtype=dtype,
            )

    def build(self, input_shape=None):
        self.embeddings.build((None, None))
        self.encoder.build((None, None, self.config.embedding_width))
        if self.pooler_dense is not None:
            with keras.name_scope("pooler"):
                self.pooler_dense.build((None, self.config.hidden_size))

    def call(self, inputs, training=None, return_hidden_states=False, return_attentions=False):
        embedded, mask = self.embed(inputs, training)
        layout = self.layout(embedded, mask)
        outputs, attentions = self.encoder.forward(
            layout.to_rows(embedded), layout, mask, None, training, return_attentions
        )
        wanted = outputs if return_hidden_states else outputs[-1:]
        hidden_states = [layout.to_batch(rows) for rows in wanted]
        for states in hidden_states:
            states.set_shape((*embedded.shape[:2], self.config.hidden_size))
        results = {"sequence_output": hidden_states[-1]}
        if self.pooler_dense is not None:
            results["pooled_output"] = self.pooler_dense(hidden_states[-1][:, 0])
        if return_hidden_states:
            results["hidden_states"] = hidden_states
        if return_attentions:
            results["attentions"] = attentions
        return results

    def embed(self, inputs, training=None):
        """Check and embed the inputs.

        Args:
            inputs, training: see the call arguments.

        Returns:
            `(x, mask)`: float tensor (B, T, embedding width); None or bool tensor, True = may
            attend.
        """
        ids, types, mask = _checked(inputs)
        tokens = None if self.architecture is None else tokens_in(mask)
        return self.embeddings(ids, types, training=training, tokens=tokens), mask

    def layout(self, x, mask):
        """Choose the layout of the rows of (B, T, W): without padding if `unpad` takes effect."""
        fixed = in_xla_program() or portable_positions()
        if self.unpad and mask is not None and mask.shape.rank == 2 and not fixed:
            return packed_layout(mask)
        return padded_layout(*tf.unstack(tf.shape(x)[:2]))

    def variables_by_name(self):
        """Same as in `PretrainedBert`, always under "bert/" whatever the model's own name."""
        return {f"bert/{name}": variable for name, variable in super().variables_by_name().items()}


_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def _checked(inputs):
    """`(ids, types, mask)`: int32 or int64 (B, T) twice; None, or bool, True = may attend."""
    inputs = dense_inputs(inputs)
    if set(inputs) - set(_INPUTS):
        raise ArgumentError(
            "inputs",
            "a dict of input_ids and optionally token_type_ids and attention_mask",
            sorted(inputs),
        )
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    types = inputs.get("token_type_ids", tf.zeros_like(ids))
    ranks = {"input_ids": (ids, (2,)), "token_type_ids": (types, (2,))}
    if mask is not None:
        ranks["attention_mask"] = (mask, (2, 3, 4))
    for name, (tensor, allowed) in ranks.items():
        fits = tensor.shape.rank in allowed and tensor.shape[-1:].is_compatible_with(ids.shape[-1:])
        if not fits or not tensor.shape[:1].is_compatible_with(ids.shape[:1]):
            raise ArgumentError(
                name,
                "a shape that matches input_ids (batch, length)",
                f"{tuple(tensor.shape)} with input_ids {tuple(ids.shape)}",
            )
    if mask is not None and not mask.dtype.is_bool:
        fits = tf.reduce_all((mask == 0) | (mask == 1))
        error = ArgumentError(
            "attention_mask",
            "1 for what may be attended to and 0 for the rest",
            "other numbers",
            "A mask that is added to scores has 0 = may attend: pass tf.cast(mask == 0, tf.int32).",
        )
        mask = asserted(mask, fits, error)
    if ids.shape[1] == 0:
        raise ArgumentError(
            "input_ids",
            "at least one token for each text, such as [CLS]",
            f"shape {tuple(ids.shape)}",
        )
    return ids, types, None if mask is None else tf.cast(mask, tf.bool)


# In matching order: a substring of the variable's name in lower case, and its use.
_PARTS = (
    ("_embeddings", "embeddings: words, positions, segments"),
    ("norm/", "layer normalizations"),
    ("embedding_hidden_mapping_in/", "mapping of the embeddings"),
    ("pooler/", "pooler"),
    ("/positions/", "positions inside attention"),
    ("/bias", "biases of attention and feed-forward"),
    ("/attention/", "attention: matrices of q, k, v and output"),
    ("", "feed-forward: matrices"),
)


def parameter_table(model):
    """Count the parameters of a model by use.

    Args:
        model: a built `Bert`, or one with a head.

    Returns:
        dict, part to number of parameters; "head" is everything above the encoder and the pooler,
        "all" the total.

    Example:
        >>> from tf_transformer.models.bert import Bert, BertConfig
        >>> model = Bert(BertConfig(11, 8, 2, 2, 16, max_position_embeddings=7))
        >>> model.build()
        >>> table = parameter_table(model)
        >>> table["attention: matrices of q, k, v and output"] == 2 * 4 * 8 * 8
        True
        >>> table["all"] == model.count_params()
        True
    """
    table = {}
    for name, variable in model.variables_by_name().items():
        part = "head"
        if name.startswith("bert/"):
            part = next(part for piece, part in _PARTS if piece in name.lower())
        table[part] = table.get(part, 0) + int(np.prod(variable.shape))
    return {**table, "all": sum(table.values())}
