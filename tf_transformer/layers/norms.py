"""Norms: parts of an `Architecture`, and separate layers.

Axes: B batch, T length, D width; the leading axes are "...", or M rows when flattened.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.tensors import wide_dtype

__all__ = ["BatchNorm", "LayerNorm", "NaiveBatchNorm", "RMSNorm"]


def layer_norm(x, gamma, beta, epsilon):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, Ba et al. 2016, equation 4."""

    # Written out, the gradient takes fewer passes over memory: (g - mean(g) - n mean(g n)) / s with
    # n the normalized x, s the denominator and g = gamma * upstream.
    @tf.custom_gradient
    def normalize(x, gamma, beta):
        centered = x - _row_mean(x)  # (M, D)
        scale = tf.math.rsqrt(_row_mean(tf.square(centered)) + epsilon)  # (M, 1)
        normal = centered * scale  # (M, D)

        def gradient(upstream):
            g = upstream * gamma
            inner = g - (_row_mean(g) + normal * _row_mean(g * normal))
            return inner * scale, _column_sum(upstream * normal), _column_sum(upstream)

        return normal * gamma + beta, gradient

    return _by_rows(normalize, x, gamma, beta)


def rms_norm(x, gamma, epsilon):
    """gamma x / sqrt(mean(x^2) + epsilon), Zhang and Sennrich 2019, equation 4."""

    # The gradient is (g - n mean(g n)) / s, written out as in `layer_norm`.
    @tf.custom_gradient
    def normalize(x, gamma):
        scale = tf.math.rsqrt(_row_mean(tf.square(x)) + epsilon)  # (M, 1)
        normal = x * scale  # (M, D)

        def gradient(upstream):
            g = upstream * gamma
            return (g - normal * _row_mean(g * normal)) * scale, _column_sum(upstream * normal)

        return normal * gamma, gradient

    return _by_rows(normalize, x, gamma)


def _by_rows(normalize, x, *weights):
    outputs = tf.reshape(normalize(tf.reshape(x, (-1, x.shape[-1])), *weights), tf.shape(x))
    outputs.set_shape(x.shape)
    return outputs


def _row_mean(x):
    return tf.reduce_mean(x, axis=-1, keepdims=True)


def _column_sum(x):
    return tf.raw_ops.BiasAddGrad(out_backprop=x)  # faster than reduce_sum on a CPU


@keras.saving.register_keras_serializable(package="tf_transformer")
class RowNorm(keras.layers.Layer):
    """A norm over the last axis with a learned scale."""

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, input_shape):
        # No autocast: the weights stay float32 under a mixed-precision policy.
        width = input_shape[-1:]
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerNorm(RowNorm):
    """Normalize each position to mean 0 and variance 1, then apply a learned scale and shift.

    gamma (x - mean) / sqrt(variance + epsilon) + beta over the last axis, Ba et al. 2016, "Layer
    Normalization", equation 4. Same as `keras.layers.LayerNormalization`, with fewer passes over
    memory (benchmarks/NOTES.md, whole models).

    Args:
        epsilon: float, added to the variance.

    Call arguments:
        inputs: float tensor (..., D).
        training, tokens: unused; as in `BatchNorm`.

    Returns:
        (..., D), in the layer's compute dtype; statistics are float32 (float64 for float64).

    Example:
        >>> LayerNorm()(tf.constant([[1.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 1.0]]
    """

    def build(self, input_shape):
        super().build(input_shape)
        width = input_shape[-1:]
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, inputs, training=None, tokens=None):
        dtype = wide_dtype(inputs)
        x, gamma, beta = (tf.cast(tensor, dtype) for tensor in (inputs, self.gamma, self.beta))
        return tf.cast(layer_norm(x, gamma, beta, self.epsilon), self.compute_dtype)


@keras.saving.register_keras_serializable(package="tf_transformer")
class RMSNorm(RowNorm):
    """Divide each position by its root mean square, then apply a learned scale.

    gamma x / sqrt(mean(x^2) + epsilon) over the last axis, Zhang and Sennrich 2019, "Root Mean
    Square Layer Normalization", equation 4. There is no mean to subtract and no shift.

    Args:
        epsilon: float, added to the mean square. For the call see `LayerNorm`.

    Example:
        >>> RMSNorm()(tf.constant([[3.0, -3.0]])).numpy().round(3).tolist()
        [[1.0, -1.0]]
    """

    def call(self, inputs, training=None, tokens=None):
        dtype = wide_dtype(inputs)
        x, gamma = (tf.cast(tensor, dtype) for tensor in (inputs, self.gamma))
        return tf.cast(rms_norm(x, gamma, self.epsilon), self.compute_dtype)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BatchNorm(keras.layers.BatchNormalization):
    """Normalize each feature by its mean and variance over the tokens of a batch.

    gamma (x - mean) / sqrt(variance + epsilon) + beta for each of the D features, Ioffe and Szegedy
    2015, "Batch Normalization", algorithm 1. Padding is left out of the statistics. Outside of
    training, their moving averages are used. Differs from `keras.layers.BatchNormalization`: it has
    other defaults, and a batch of only padding is an error.

    Args:
        momentum, epsilon: floats, of the moving averages, and added to the variance.

    Call arguments:
        inputs: float tensor (..., D).
        training: bool or None; the statistics of the batch are used, and averaged, if true.
        tokens: None, or bool tensor (...), True for tokens, False for padding.
        mask: the same, used if `tokens` is None; by default the Keras mask of `inputs`.

    Returns:
        (..., D); for dtypes see `LayerNorm`.

    Raises:
        tf.errors.InvalidArgumentError: If a training batch has no token; in XLA the mean is 0.

    Example:
        >>> x = tf.constant([[[1.0, 5.0], [3.0, 7.0], [99.0, 99.0]]])
        >>> tokens = tf.constant([[True, True, False]])
        >>> BatchNorm()(x, training=True, tokens=tokens).numpy()[0, :2].round(2).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    def __init__(self, momentum=0.99, epsilon=1e-6, **kwargs):
        super().__init__(momentum=momentum, epsilon=epsilon, **kwargs)

    def call(self, inputs, training=None, tokens=None, mask=None):
        tokens = mask if tokens is None else tokens
        if training and self.trainable and tokens is not None:
            message = "tokens: expected at least one in a training batch, got only padding."
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_any(tokens), [message])]):
                tokens = tf.identity(tokens)
        return super().call(inputs, training=training, mask=tokens)

    def get_config(self):
        config = keras.layers.Layer.get_config(self)
        return {**config, "momentum": self.momentum, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="tf_transformer")
class NaiveBatchNorm(BatchNorm):
    """`BatchNorm` that includes padding in its statistics, to show what that costs.

    For the arguments see `BatchNorm`; `tokens` and `mask` are ignored.

    Example:
        >>> x = tf.constant([[[4.0, 8.0], [4.0, 8.0], [0.0, 0.0], [0.0, 0.0]]])
        >>> tokens = tf.constant([[True, True, False, False]])
        >>> NaiveBatchNorm()(x, training=True, tokens=tokens).numpy()[0, 0].round(3).tolist()
        [1.0, 1.0]
    """

    def call(self, inputs, training=None, tokens=None, mask=None):
        return super().call(inputs, training=training)
