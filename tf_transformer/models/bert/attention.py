"""The attention of BERT, without the output projection.

Axes: B batch, F length of the queries ("from"), T length of the keys ("to"), M tokens, N heads,
G heads of keys and values, H head width, D hidden size.
"""

import contextlib
import contextvars

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.functional.attention.scaled_dot_product import grouped_attention
from tf_transformer.layers.base_layer import NotesLayer
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.positions import part_config, with_part
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.token_layout import padded_layout

_drawing = contextvars.ContextVar("drawing", default=True)


@keras.saving.register_keras_serializable(package="tf_transformer")
class DrawnKernel(keras.initializers.TruncatedNormal):
    """Truncated normal values, or uninitialized memory inside `without_drawing`."""

    def __call__(self, shape, dtype=None):
        if _drawing.get():
            return super().__call__(shape, dtype)
        return tf.raw_ops.Empty(shape=shape, dtype=dtype or keras.backend.floatx())


@contextlib.contextmanager
def without_drawing():
    """Build a model without drawing the initial weights of its encoder.

    Drawing them takes longer than reading a checkpoint. Every variable with a `DrawnKernel` must
    be assigned afterwards.
    """
    token = _drawing.set(False)
    try:
        yield
    finally:
        _drawing.reset(token)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertAttention(NotesLayer, keras.layers.Layer):
    """Projections to queries, keys and values, and attention with dropout on the weights.

    Devlin et al. 2019, section 3, and "Attention Is All You Need", section 3.2.2, without the
    output projection.

    Args:
        num_attention_heads: int, N.
        size_per_head: int, H.
        query_act, key_act, value_act: None, a function, or a name of `functional.activations`.
        attention_probs_dropout_prob: float in [0, 1).
        initializer_range: float, standard deviation for initializing kernels.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        positions, num_key_value_heads, share_qk, window: see `MultiHeadAttention`.

    Example:
        >>> from tf_transformer.models.bert.token_layout import padded_layout
        >>> layer, layout = BertAttention(2, 4), padded_layout(1, 3)
        >>> layer.build((3, 8), (3, 8))
        >>> rows, weights = layer.attend(tf.ones((3, 8)), tf.ones((3, 8)), layout, layout)
        >>> rows.shape.as_list(), weights is None
        ([3, 8], True)
    """

    def __init__(
        self,
        num_attention_heads,
        size_per_head,
        *,
        query_act=None,
        key_act=None,
        value_act=None,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.02,
        jit="auto",
        positions=None,
        num_key_value_heads=None,
        share_qk=False,
        window=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_attention_heads = num_attention_heads
        self.size_per_head = size_per_head
        self.activations = query_act, key_act, value_act
        self.rate = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.jit = jit
        self.positions = positions
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.share_qk = share_qk
        self.window = window
        self.seed_generator = keras.random.SeedGenerator()
        self.query = self._projection("query", num_attention_heads, query_act)
        self.key = self.query
        if not share_qk:
            self.key = self._projection("key", self.num_key_value_heads, key_act)
        self.value = self._projection("value", self.num_key_value_heads, value_act)

    def _projection(self, name, heads, activation):
        return FlatDense(
            heads * self.size_per_head,
            get_activation(activation),
            kernel_initializer=DrawnKernel(stddev=self.initializer_range),
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, from_tensor_shape, to_tensor_shape):
        self.query.build(from_tensor_shape)
        if not self.share_qk:
            self.key.build(to_tensor_shape)
        self.value.build(to_tensor_shape)
        if self.positions is not None and not self.positions.built:
            self.positions.build((None, self.num_attention_heads, None, self.size_per_head))

    def attend(
        self,
        from_rows,
        to_rows,
        from_layout,
        to_layout,
        mask=None,
        bias=None,
        training=None,
        return_attention_weights=False,
    ):
        """Attend from the tokens of one matrix to those of another.

        Args:
            from_rows, to_rows: float tensors (M, width).
            from_layout, to_layout: position of each row in the batch, see `token_layout`.
            mask, bias: see `scaled_dot_product_attention`.
            training: bool or None; dropout is only applied if true.
            return_attention_weights: bool.

        Returns:
            `(rows, weights)`: (M, N * H), and (B, N, F, T) or None.

        Raises:
            ValueError: If both `bias` and `positions` add to the scores.
        """
        dropout = None
        if training and self.rate:
            dropout = self.rate, tf.cast(self.seed_generator.next(), tf.int64)
        queries = from_layout.to_heads(self.query(from_rows), self.num_attention_heads)
        keys, values = (
            to_layout.to_heads(project(to_rows), self.num_key_value_heads)
            for project in (self.key, self.value)
        )
        if self.positions is not None:
            queries, keys = (
                self.positions.rotate(x, tf.range(tf.shape(x)[2])) for x in (queries, keys)
            )
            bias = self._bias(queries, keys, bias)
        heads, weights = grouped_attention(
            queries,
            keys,
            values,
            self.num_attention_heads // self.num_key_value_heads,
            mask,
            bias=bias,
            window=self.window,
            dropout=dropout,
            return_attention_weights=return_attention_weights,
            jit=self.jit,
        )
        return from_layout.from_heads(heads), weights

    def _bias(self, queries, keys, bias):
        length = tf.shape(keys)[2] if keys.shape[2] is None else keys.shape[2]
        by_distance = self.positions.by_distance(queries, length, causal=False)
        if by_distance is None:
            return bias
        if bias is not None:
            raise ArgumentError(
                "bias",
                f"None, since {type(self.positions).__name__} adds its own to the scores",
                remedy="Pass a mask instead of an additive one.",
            )
        return by_distance

    def get_config(self):
        names = ("query_act", "key_act", "value_act")
        return {
            **super().get_config(),
            "num_attention_heads": self.num_attention_heads,
            "size_per_head": self.size_per_head,
            **dict(zip(names, self.activations, strict=True)),
            "attention_probs_dropout_prob": self.rate,
            "initializer_range": self.initializer_range,
            "jit": self.jit,
            "positions": part_config(self.positions),
            "num_key_value_heads": self.num_key_value_heads,
            "share_qk": self.share_qk,
            "window": self.window,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))


@keras.saving.register_keras_serializable(package="tf_transformer")
class BERTSelfAttention(BertAttention):
    """Self-attention with an additive mask.

    softmax(Q K^T / sqrt(H) + attention_mask) V in each head, heads concatenated; Devlin et al.
    2019, section 3.

    Args:
        config: `BertConfig`, or its dict.
        num_heads: None for that of the config; or int, N, with the width that the config gives.
        jit: True, False or "auto", whether to compile the attention core with XLA.

    Call arguments:
        hidden_states: float tensor (B, T, D).
        attention_mask: None, or a float tensor that broadcasts to the scores (B, N, T, T) and is
            added to them: 0.0 = may attend, -10000.0 = blocked; see `additive_mask`.
        training: bool or None; dropout is only applied if true.
        hidden_states_mask: None, or bool tensor (B, T), False for padding, which is blocked as
            well; by default the Keras mask of `hidden_states`, which is also that of the output.

    Returns:
        (B, T, D).

    Raises:
        ValueError: If the input has another rank or width, or the mask is an integer or bool
            tensor and therefore not additive.

    Example:
        >>> layer = BERTSelfAttention(BertConfig(hidden_size=8, num_attention_heads=2))
        >>> layer(tf.ones((1, 3, 8)), tf.constant([[[[0.0, 0.0, -10000.0]]]])).shape.as_list()
        [1, 3, 8]
    """

    def __init__(self, config, *, num_heads=None, jit="auto", **kwargs):
        config = BertConfig.of(config)
        super().__init__(
            num_heads or config.num_attention_heads,
            config.head_size,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
            initializer_range=config.initializer_range,
            jit=jit,
            **kwargs,
        )
        self.config = config

    def build(self, hidden_states_shape):
        if hidden_states_shape[-1] != self.config.hidden_size:
            raise ArgumentError(
                "hidden_states",
                f"(batch, length, {self.config.hidden_size})",
                f"shape {tuple(hidden_states_shape)}",
            )
        super().build(hidden_states_shape, hidden_states_shape)

    def call(self, hidden_states, attention_mask=None, training=None, *, hidden_states_mask=None):
        if len(hidden_states.shape) != 3:
            raise ArgumentError(
                "hidden_states", "(batch, length, width)", f"shape {tuple(hidden_states.shape)}"
            )
        if attention_mask is not None and not attention_mask.dtype.is_floating:
            raise ArgumentError(
                "attention_mask",
                "floats to add to the scores",
                attention_mask.dtype.name,
                "Pass additive_mask(attention_mask).",
            )
        layout = padded_layout(*tf.unstack(tf.shape(hidden_states)[:2]))
        rows = layout.to_rows(hidden_states)
        mask = with_key_masks(None, hidden_states, hidden_states_mask)
        context, _ = self.attend(rows, rows, layout, layout, mask, attention_mask, training)
        context = layout.to_batch(context)
        context.set_shape(hidden_states.shape)
        return context

    def get_config(self):
        # The config replaces the arguments of `BertAttention`.
        config = keras.layers.Layer.get_config(self)
        heads = self.num_attention_heads
        return {**config, "config": self.config.to_dict(), "num_heads": heads, "jit": self.jit}
