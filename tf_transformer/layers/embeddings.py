"""Token embedding with positions, the bottom layer of the encoder and the decoder.

Axes: B batch, T length, K rows per sentence, C cache slots, D model width, E embedding width,
V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.int8_product import LARGEST, int8_product
from tf_transformer.functional.tensors import (
    as_ids,
    in_vocabulary,
    nan_outside,
    over_rows,
    times_transposed,
)
from tf_transformer.layers.base_layer import NotesLayer, TakesIds, attributes
from tf_transformer.layers.positions import Positional_Encoding, part_config, with_part
from tf_transformer.layers.residuals import Dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class FactorizedEmbedding(keras.layers.Layer):
    """Narrow word vectors, widened by a matrix: V E + E D weights instead of V D."""

    # Lan et al. 2020, "ALBERT", section 3.1, "factorized embedding parameterization". There is no
    # bias, so that the table can also be the output projection.

    def __init__(self, input_dim, embedding_size, output_dim, **kwargs):
        super().__init__(**kwargs)
        if embedding_size >= output_dim:
            expected = f"less than {output_dim}, the model width"
            remedy = "Leave it out for a table of full width."
            raise ArgumentError("embedding_size", expected, embedding_size, remedy)
        self.supports_masking = True
        self.input_dim, self.embedding_size, self.output_dim = input_dim, embedding_size, output_dim
        normal = keras.initializers.RandomNormal(stddev=output_dim**-0.5)
        options = {"name": "table", "dtype": self.dtype_policy}
        self.table = keras.layers.Embedding(input_dim, embedding_size, normal, **options)
        self.table.supports_masking = True

    def build(self, ids_shape):
        self.table.build(ids_shape)
        # Together they have the variance of a full table, 1 / D.
        normal = keras.initializers.RandomNormal(stddev=self.embedding_size**-0.5)
        shape = (self.embedding_size, self.output_dim)
        self.projection = self.add_weight(shape, initializer=normal, name="projection")

    def call(self, ids):
        narrow = self.table(ids)
        projection = tf.cast(self.projection, narrow.dtype)
        return over_rows(lambda rows: tf.matmul(rows, projection), narrow)

    def narrowed(self, rows):
        """Map (M, D) to (M, E): times the narrow table, it gives the product with the full one."""
        return tf.matmul(rows, tf.cast(self.projection, rows.dtype), transpose_b=True)

    def get_config(self):
        fields = attributes(self, "input_dim", "embedding_size", "output_dim")
        return {**super().get_config(), **fields}


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenEmbedding(TakesIds, NotesLayer, keras.layers.Layer):
    """Embedding scaled by sqrt(D), plus positions, perhaps a norm, then dropout.

    "Attention Is All You Need", sections 3.4, 3.5 and 5.4.

    Args:
        vocab_size, d_model, max_position: ints, V, D and the longest sequence.
        rate: float, dropout rate.
        embedding: None, or a `keras.layers.Embedding` or `FactorizedEmbedding` (V, D) to share,
            which is not in the config.
        positions: None for `Positional_Encoding(max_position)`; or a part of `layers.positions`.
        embedding_size: None, or int, for a `FactorizedEmbedding`.
        scale: bool, whether the embedding is multiplied by sqrt(D).
        norm: None, or a norm of `layers.norms`.

    Call arguments:
        ids: integer tensor (B, T); see `as_ids` for what else is accepted.
        training: bool or None; dropout is only applied if true.
        start: int or scalar int32 tensor, the position of the first token.
        tokens: None, or bool tensor (B, T), False for padding, for a norm over the batch.

    Returns:
        float tensor (B, T, D).

    Raises:
        ValueError: If T is larger than `max_position`, `embedding` has a different size or
            `mask_zero=True`, `positions` has fewer positions, or an id is out of range; in a graph
            `tf.errors.InvalidArgumentError`. In XLA the vectors of such an id are NaN.

    Example:
        >>> TokenEmbedding(11, 8, 16)(tf.constant([[1, 2, 0]])).shape.as_list()
        [1, 3, 8]
    """

    input_range = None  # of `product` with a table in int8, see `FlatDense`

    def __init__(
        self,
        vocab_size,
        d_model,
        max_position,
        rate=0.1,
        embedding=None,
        positions=None,
        embedding_size=None,
        scale=True,
        norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        options = {"name": "embedding", "dtype": self.dtype_policy}
        if embedding is None and embedding_size is not None:
            embedding = FactorizedEmbedding(vocab_size, embedding_size, d_model, **options)
        elif embedding is None:
            # Variance 1 after scaling by sqrt(D), and for logits of a tied output projection.
            normal = keras.initializers.RandomNormal(stddev=d_model**-0.5)
            embedding = keras.layers.Embedding(vocab_size, d_model, normal, **options)
        if (embedding.input_dim, embedding.output_dim) != (vocab_size, d_model):
            got = f"({embedding.input_dim}, {embedding.output_dim})"
            raise ArgumentError("embedding", f"a table of ({vocab_size}, {d_model})", got)
        if getattr(embedding, "mask_zero", False):
            reason = "since a saved model would not mask padding any more"
            remedy = "Pass create_padding_mask(ids) as mask."
            expected = f"a table with mask_zero=False, {reason}"
            raise ArgumentError("embedding", expected, "mask_zero=True", remedy)
        embedding.supports_masking = True  # or it warns of ids with a Keras mask, which is kept
        self.embedding = embedding
        if positions is None:
            positions = Positional_Encoding(max_position, dtype=self.dtype_policy)
        if (positions.max_position or max_position) < max_position:
            longest = "the longest text (max_position, pe_input, pe_target)"
            got = f"{positions.max_position} of {type(positions).__name__}"
            raise ArgumentError("positions", f"at least {max_position} positions, {longest}", got)
        self.max_position = max_position
        self.positions = positions
        self.scale, self.norm = scale, norm
        self.dropout = Dropout(rate, name="dropout", dtype=self.dtype_policy)

    def build(self, ids_shape):
        if not self.embedding.built:
            self.embedding.build(ids_shape)
        hidden_shape = (*ids_shape, self.embedding.output_dim)
        if self.positions.in_embeddings:
            self.positions.build(hidden_shape)
        if self.norm is not None:
            self.norm.build(hidden_shape)
        self.dropout.build(hidden_shape)

    def call(self, ids, training=None, start=0, tokens=None):
        size, width = self.embedding.input_dim, self.embedding.output_dim
        ids = in_vocabulary(as_ids(ids, self.ids_name), size, self.ids_name)
        x = self.embedding(ids)
        x *= (width**0.5 if self.scale else 1.0) + nan_outside(ids, size, x.dtype)
        which = {} if self.positions.counts_padding else {"tokens": tokens}
        x = self.positions.add(x, start, **which)
        if self.norm is not None:
            x = self.norm(x, training=training, tokens=tokens)
        return self.dropout(x, training=training)

    def step(self, tokens, position, slots, shared=0):
        """Embed one token per row (B, K) at a `position`; for the slots see `Encoder.step`.

        Returns `(x, slot, token_positions)`: (B, K, D), and what `MultiHeadAttention.step` needs.
        """
        batch_size, rows = tf.unstack(tf.shape(tokens))
        x = self(tf.reshape(tokens, (-1, 1)), training=False, start=position)  # (B * K, 1, D)
        x = tf.reshape(x, (batch_size, rows, self.embedding.output_dim))  # (B, K, D)
        own = tf.range(slots) - shared  # < 0 for shared slots
        of_slots = shared + tf.minimum(own, own // rows)
        return x, shared + (position - shared) * rows, (tf.fill((rows,), position), of_slots)

    def logits(self, x):
        """Project (..., D) to logits (..., V) with the embedding table, without a bias (3.4)."""
        is_factorized = isinstance(self.embedding, FactorizedEmbedding)

        def product(rows):
            return self.product(self.embedding.narrowed(rows) if is_factorized else rows)

        return over_rows(product, x)

    def product(self, rows):
        """Multiply by the transposed table: rows (M, D), or (M, E) from `narrowed`, to (M, V)."""
        is_factorized = isinstance(self.embedding, FactorizedEmbedding)
        embedding = self.embedding.table if is_factorized else self.embedding
        if embedding.quantization_mode == "int8":
            table = embedding.embeddings.value
            ranges = LARGEST / tf.convert_to_tensor(embedding.embeddings_scale)  # (V,)
            return int8_product(rows, table, ranges, most=self.input_range, transposed=True)
        table = tf.convert_to_tensor(embedding.embeddings)  # (V, D)
        return times_transposed(rows, tf.cast(table, rows.dtype))

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.embedding.input_dim,
            "d_model": self.embedding.output_dim,
            "max_position": self.max_position,
            "rate": self.dropout.rate,
            "positions": part_config(self.positions),
            "embedding_size": getattr(self.embedding, "embedding_size", None),
            "scale": self.scale,
            "norm": part_config(self.norm),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
