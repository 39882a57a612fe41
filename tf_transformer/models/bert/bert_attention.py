"""BERT attention on matrices of tokens.

Axes: B batch, F length of the queries ("from"), T length of the keys ("to"), N heads, H head width,
M rows of a matrix of tokens.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.attention.scaled_dot_product import scaled_dot_product_attention
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.models.bert.drawn_kernel import DrawnKernel


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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_attention_heads = num_attention_heads
        self.size_per_head = size_per_head
        self.activations = query_act, key_act, value_act
        self.rate = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.jit = jit
        self.seed_generator = keras.random.SeedGenerator()
        self.query, self.key, self.value = (
            FlatDense(
                num_attention_heads * size_per_head,
                get_activation(activation),
                kernel_initializer=DrawnKernel(stddev=initializer_range),
                name=name,
                dtype=self.dtype_policy,
            )
            for name, activation in (("query", query_act), ("key", key_act), ("value", value_act))
        )

    def build(self, from_tensor_shape, to_tensor_shape):
        self.query.build(from_tensor_shape)
        self.key.build(to_tensor_shape)
        self.value.build(to_tensor_shape)

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
        """
        dropout = None
        if training and self.rate:
            dropout = self.rate, tf.cast(self.seed_generator.next(), tf.int64)
        heads, weights = scaled_dot_product_attention(
            from_layout.to_heads(self.query(from_rows), self.num_attention_heads),
            to_layout.to_heads(self.key(to_rows), self.num_attention_heads),
            to_layout.to_heads(self.value(to_rows), self.num_attention_heads),
            mask,
            bias=bias,
            dropout=dropout,
            return_attention_weights=return_attention_weights,
            jit=self.jit,
        )
        return from_layout.from_heads(heads), weights

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
        }
