"""Token embedding with positions, the bottom layer of the encoder and the decoder.

Axes: B batch, T length, K rows per sentence, C cache slots, D model width, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.ids import as_ids, in_vocabulary, nan_outside
from tf_transformer.functional.int8_product import LARGEST, int8_product
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.factorized_embedding import FactorizedEmbedding
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.positional_encoding import Positional_Encoding
from tf_transformer.layers.positions.positions import part_config, with_part
from tf_transformer.layers.takes_ids import TakesIds


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenEmbedding(TakesIds, NotesLayer, keras.layers.Layer):
    """Embedding scaled by sqrt(D), plus positions, then dropout.

    "Attention Is All You Need", sections 3.4, 3.5 and 5.4.

    Args:
        vocab_size: int, V.
        d_model: int, D.
        max_position: int, the longest sequence.
        rate: float, dropout rate.
        embedding: None, or a `keras.layers.Embedding` or `FactorizedEmbedding` (V, D) to share. It
            is not in the config: a model that shares a table (`Transformer`) shares it again when
            it is re-created.
        positions: None for sinusoids up to `max_position`; or a part of `layers.positions`.
        embedding_size: None, or int, for a `FactorizedEmbedding`.

    Call arguments:
        ids: integer tensor (B, T); see `as_ids` for what else is taken.
        training: bool or None; dropout is only applied if true.
        start: int or scalar int32 tensor, the position of the first token.

    Returns:
        (B, T, D).

    Raises:
        ValueError: If T is larger than `max_position`, `embedding` has a different size or
            `mask_zero=True`, `positions` has fewer positions, or, in eager mode, an id is out of
            range.
        tf.errors.InvalidArgumentError: If, in a graph, an id is out of range. XLA cannot raise
            errors: there the vectors of such an id are NaN.

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        if embedding is None and embedding_size is not None:
            embedding = FactorizedEmbedding(
                vocab_size, embedding_size, d_model, name="embedding", dtype=self.dtype_policy
            )
        elif embedding is None:
            embedding = keras.layers.Embedding(
                vocab_size,
                d_model,
                # Variance 1 after scaling by sqrt(D), and for logits of a tied output projection.
                embeddings_initializer=keras.initializers.RandomNormal(stddev=d_model**-0.5),
                name="embedding",
                dtype=self.dtype_policy,
            )
        if (embedding.input_dim, embedding.output_dim) != (vocab_size, d_model):
            raise ArgumentError(
                "embedding",
                f"a table of ({vocab_size}, {d_model})",
                f"({embedding.input_dim}, {embedding.output_dim})",
            )
        if getattr(embedding, "mask_zero", False):
            raise ArgumentError(
                "embedding",
                (
                    "a table with mask_zero=False, since a saved model would not mask "
                    "padding any more"
                ),
                "mask_zero=True",
                "Pass create_padding_mask(ids) as mask.",
            )
        embedding.supports_masking = True  # or it warns of ids with a Keras mask, which is kept
        self.embedding = embedding
        if positions is not None and (positions.max_position or max_position) < max_position:
            raise ArgumentError(
                "positions",
                (
                    f"at least {max_position} positions, the longest text (max_position, "
                    "pe_input, pe_target)"
                ),
                f"{positions.max_position} of {type(positions).__name__}",
            )
        self.max_position = max_position
        self.positions = positions
        self.pos_encoding = None
        if positions is None:
            self.pos_encoding = Positional_Encoding(
                max_position, name="pos_encoding", dtype=self.dtype_policy
            )
        self.dropout = Dropout(rate, name="dropout", dtype=self.dtype_policy)

    def build(self, ids_shape):
        if not self.embedding.built:
            self.embedding.build(ids_shape)
        hidden_shape = (*ids_shape, self.embedding.output_dim)
        if self.pos_encoding is not None:
            self.pos_encoding.build(hidden_shape)
        elif self.positions.in_embeddings:
            self.positions.build(hidden_shape)
        self.dropout.build(hidden_shape)

    def call(self, ids, training=None, start=0):
        size, width = self.embedding.input_dim, self.embedding.output_dim
        ids = in_vocabulary(as_ids(ids, self.ids_name), size, self.ids_name)
        x = self.embedding(ids)
        x *= width**0.5 + nan_outside(ids, size, x.dtype)
        if self.pos_encoding is not None:
            x = self.pos_encoding(x, start=start)
        else:
            x = self.positions.add(x, start)
        return self.dropout(x, training=training)

    def step(self, tokens, position, slots):
        """Embed one token per row of a cached decoding, without dropout.

        Args:
            tokens: integer tensor (B, K), the tokens at `position` of the K rows of each sentence.
            position: scalar int32 tensor.
            slots: int or scalar int32 tensor C; the tokens at position p are in the K slots from
                p * K on.

        Returns:
            `(x, slot, at)`: float tensor (B, K, D), and what `MultiHeadAttention.step` needs: the
            first slot to write to, and the positions of the new tokens (K,) and of the slots (C,).
        """
        batch_size, rows = tf.unstack(tf.shape(tokens))
        x = self(tf.reshape(tokens, (-1, 1)), training=False, start=position)  # (B * K, 1, D)
        x = tf.reshape(x, (batch_size, rows, self.embedding.output_dim))  # (B, K, D)
        return x, position * rows, (tf.fill((rows,), position), tf.range(slots) // rows)

    def logits(self, x):
        """Project to vocabulary logits with the embedding table, without a bias (section 3.4).

        Args:
            x: float tensor (..., D).

        Returns:
            (..., V).
        """
        shape = tf.unstack(tf.shape(x))[:-1]
        flat = tf.reshape(x, (-1, self.embedding.output_dim))  # (B*T, D)
        if isinstance(self.embedding, FactorizedEmbedding):
            flat = self.embedding.narrowed(flat)
        return tf.reshape(self.product(flat), (*shape, self.embedding.input_dim))  # (..., V)

    def product(self, rows):
        """Multiply rows (M, D), or as wide as the word vectors, by the table: (M, V)."""
        is_factorized = isinstance(self.embedding, FactorizedEmbedding)
        embedding = self.embedding.table if is_factorized else self.embedding
        if embedding.quantization_mode == "int8":
            table = embedding.embeddings.value
            ranges = LARGEST / tf.convert_to_tensor(embedding.embeddings_scale)  # (V,)
            return int8_product(rows, table, ranges, most=self.input_range, transposed=True)
        table = tf.convert_to_tensor(embedding.embeddings)  # (V, D)
        return tf.matmul(rows, tf.cast(table, rows.dtype), transpose_b=True)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.embedding.input_dim,
            "d_model": self.embedding.output_dim,
            "max_position": self.max_position,
            "rate": self.dropout.rate,
            "positions": part_config(self.positions),
            "embedding_size": getattr(self.embedding, "embedding_size", None),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(config))
