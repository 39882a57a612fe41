"""BERT attention on matrices of tokens.

Axes: B batch, F length of the queries ("from"), T length of the keys ("to"), N heads, G heads of
keys and values, H head width, M rows of a matrix of tokens.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.attention.scaled_dot_product import grouped_attention
from tf_transformer.layers.base_layer import NotesLayer
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.positions import part_config, with_part
from tf_transformer.models.bert.drawn_kernel import DrawnKernel


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertAttention(NotesLayer, keras.layers.Layer):
    """Projections to queries, keys and values, and attention with dropout on the weights.

    Devlin et al. 2019, section 3, and "Attention Is All You Need", section 3.2.2, without the
    output projection.
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
        """Attend from the tokens of one matrix to those of another."""
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
