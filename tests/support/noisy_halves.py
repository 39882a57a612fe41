"""A model whose two passes under R-Drop differ without randomness."""

import keras
import tensorflow as tf


class NoisyHalves(keras.Model):
    """Logits (B, 4) that differ between the halves of a batch in training, like with dropout."""

    def build(self, input_shape=None):
        self.kernel = self.add_weight(shape=(3, 4), initializer="ones", name="kernel")

    def call(self, x, training=None):
        rows = tf.shape(x)[0]
        half = tf.cast(tf.range(rows) < rows // 2, tf.float32)[:, None]
        logits = tf.cast(x, tf.float32) @ self.kernel.value * tf.range(4.0)
        return (logits + half * tf.constant([0.5, 0, 0, 0.25])) if training else logits
