"""An embedding table as the product of two smaller matrices.

Axes: B batch, T length, D model width, E embedding width, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError


@keras.saving.register_keras_serializable(package="tf_transformer")
class FactorizedEmbedding(keras.layers.Layer):
    """Narrow word vectors, widened by a matrix: V E + E D weights instead of V D.

    Lan et al. 2020, "ALBERT", section 3.1, "factorized embedding parameterization". Without a bias,
    so that the table can be the output projection as well.
    """

    def __init__(self, input_dim, embedding_size, output_dim, **kwargs):
        super().__init__(**kwargs)
        if embedding_size >= output_dim:
            raise ArgumentError(
                "embedding_size",
                f"less than {output_dim}, the model width",
                embedding_size,
                "Leave it out for a table of the whole width.",
            )
        self.supports_masking = True
        self.input_dim, self.embedding_size, self.output_dim = input_dim, embedding_size, output_dim
        self.table = keras.layers.Embedding(
            input_dim,
            embedding_size,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=output_dim**-0.5),
            name="table",
            dtype=self.dtype_policy,
        )
        self.table.supports_masking = True

    def build(self, ids_shape):
        self.table.build(ids_shape)
        # Together they have the variance of a whole table, 1 / D.
        self.projection = self.add_weight(
            (self.embedding_size, self.output_dim),
            initializer=keras.initializers.RandomNormal(stddev=self.embedding_size**-0.5),
            name="projection",
        )

    def call(self, ids):
        rows = tf.reshape(self.table(ids), (-1, self.embedding_size))
        wide = tf.matmul(rows, tf.cast(self.projection, rows.dtype))
        return tf.reshape(wide, tf.concat([tf.shape(ids), [self.output_dim]], 0))

    def narrowed(self, rows):
        """Map (M, D) to (M, E), whose product with the table is that with the whole table."""
        return tf.matmul(rows, tf.cast(self.projection, rows.dtype), transpose_b=True)

    def get_config(self):
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "embedding_size": self.embedding_size,
            "output_dim": self.output_dim,
        }
