"""The attention of BERT, without the output projection, on matrices with a row for each token.

Dense layers and norms process each token independently, so BERT computes on a matrix (M, width).
Only attention needs to know which rows belong together: a layout. Axes: B batch, F length of the
queries ("from"), T length of the keys ("to"), M rows of the matrix, N heads, G heads of keys and
values, H head width, W any width.
"""

import contextlib
import contextvars

import keras
import tensorflow as tf

from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.attention.scaled_dot_product import grouped_attention
from tf_transformer.layers.base_layer import NotesLayer, attributes
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.layers.multi_head_attention import bias_of
from tf_transformer.layers.positions import part_config, with_part


class PaddedLayout:
    """One row for each position of the batch, including padding: M = B * T."""

    def __init__(self, batch_size, length):
        self.batch_size, self.length = batch_size, length

    def to_rows(self, x):
        """(B, T, W) -> (M, W)."""
        return tf.reshape(x, (-1, x.shape[-1]))

    def to_batch(self, rows):
        """(M, W) -> (B, T, W)."""
        return tf.reshape(rows, (self.batch_size, self.length, rows.shape[-1]))

    def to_heads(self, rows, num_heads):
        """(M, N * H) -> (B, N, T, H)."""
        shape = self.batch_size, self.length, num_heads, rows.shape[-1] // num_heads
        return tf.transpose(tf.reshape(rows, shape), (0, 2, 1, 3))

    def from_heads(self, heads):
        """(B, N, T, H) -> (M, N * H)."""
        x = tf.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        return tf.reshape(x, (-1, x.shape[-2] * x.shape[-1]))


class PackedLayout:
    """One row for each token, without padding; XLA cannot compile it, since M is not fixed."""

    def __init__(self, keep):
        self._shape = tf.shape(keep)
        self._keep = keep
        flat = tf.reshape(keep, (-1,))
        # A batch with only padding keeps one row, so that there is one to gather from.
        first = tf.one_hot(0, tf.size(flat), True, False)
        flat = flat | (first & ~tf.reduce_any(flat))
        self._places = tf.cast(tf.where(flat)[:, 0], tf.int32)  # (M,), index of each row in B * T
        # The row of each position; padding reads row 0, which is then zeroed or masked.
        rows = tf.where(flat, tf.cumsum(tf.cast(flat, tf.int32)) - 1, 0)
        self._rows = tf.reshape(rows, self._shape)  # (B, T)

    def to_rows(self, x):
        """(B, T, W) -> (M, W)."""
        return tf.gather(tf.reshape(x, (-1, x.shape[-1])), self._places)

    def to_batch(self, rows):
        """(M, W) -> (B, T, W), 0 for padding."""
        keep = tf.cast(tf.expand_dims(self._keep, -1), rows.dtype)
        x = tf.gather(rows, self._rows) * keep
        x.set_shape((*self._keep.shape, rows.shape[-1]))
        return x

    def to_heads(self, rows, num_heads):
        """(M, N * H) -> (B, N, T, H)."""
        # Gathers heads to their final position instead of gathering rows and transposing them: for
        # a batch of one sentence a transpose takes 20 times as long as a gather.
        heads = tf.reshape(rows, (-1, rows.shape[-1] // num_heads))  # (M * N, H)
        n = tf.reshape(tf.range(num_heads), (num_heads, 1))
        return tf.gather(heads, tf.expand_dims(self._rows * num_heads, 1) + n)

    def from_heads(self, heads):
        """(B, N, T, H) -> (M, N * H)."""
        num_heads, width = heads.shape[1], heads.shape[-1]
        length = self._shape[1]
        b, t = self._places // length, self._places % length
        n = tf.range(num_heads) * length
        place = tf.expand_dims(b * num_heads * length + t, 1) + n  # (M, N), in B * N * T
        rows = tf.gather(tf.reshape(heads, (-1, width)), place)
        return tf.reshape(rows, (-1, num_heads * width))


def tokens_in(mask):
    """Distinguish tokens from padding by an attention mask: tokens are attended to."""
    if mask is None or mask.shape.rank == 2:
        return mask
    return tf.reduce_any(mask, axis=list(range(1, mask.shape.rank - 1)))


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
    """Build a model without drawing its `DrawnKernel`s, which takes longer than reading them."""
    token = _drawing.set(False)
    try:
        yield
    finally:
        _drawing.reset(token)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertAttention(NotesLayer, keras.layers.Layer):
    """Projections to queries, keys and values, and attention with dropout on the weights."""

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
        kernel = DrawnKernel(stddev=self.initializer_range)
        options = {"kernel_initializer": kernel, "name": name, "dtype": self.dtype_policy}
        return FlatDense(heads * self.size_per_head, get_activation(activation), **options)

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
        """Attend from rows (M, width) to others: (M, N * H), and weights (B, N, F, T) or None."""
        dropout = None
        if training and self.rate:
            dropout = self.rate, tf.cast(self.seed_generator.next(), tf.int64)
        queries = from_layout.to_heads(self.query(from_rows), self.num_attention_heads)
        keys, values = (
            to_layout.to_heads(project(to_rows), self.num_key_value_heads)
            for project in (self.key, self.value)
        )
        part = self.positions
        if part is not None:
            queries, keys = (part.rotate(x, tf.range(tf.shape(x)[2])) for x in (queries, keys))
        heads, weights = grouped_attention(
            queries,
            keys,
            values,
            self.num_attention_heads // self.num_key_value_heads,
            mask,
            bias=bias_of(self.positions, queries, keys, bias),
            window=self.window,
            dropout=dropout,
            return_attention_weights=return_attention_weights,
        )
        return from_layout.from_heads(heads), weights

    def attend_batch(self, from_tensor, to_tensor, mask=None, bias=None, training=None):
        """See `attend`; from (B, F, width) to (B, T, width), returns (B, F, N * H)."""
        tensors = from_tensor, to_tensor
        layouts = [PaddedLayout(*tf.unstack(tf.shape(x)[:2])) for x in tensors]
        rows = [layout.to_rows(x) for layout, x in zip(layouts, tensors, strict=True)]
        rows, _ = self.attend(*rows, *layouts, mask, bias, training)
        output = layouts[0].to_batch(rows)
        output.set_shape((*from_tensor.shape[:2], rows.shape[-1]))
        return output

    def get_config(self):
        sizes = ("num_attention_heads", "size_per_head", "initializer_range", "num_key_value_heads")
        activations = ("query_act", "key_act", "value_act")
        return {
            **super().get_config(),
            **attributes(self, *sizes, "share_qk", "window"),
            **dict(zip(activations, self.activations, strict=True)),
            "attention_probs_dropout_prob": self.rate,
            "positions": part_config(self.positions),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
