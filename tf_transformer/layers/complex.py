"""Complex-valued layers, after Wang et al. 2020, "Encoding Word Order in Complex Embeddings".

Outputs are complex64 and weights float32 even under a half-precision policy, since TensorFlow has
no half-precision complex dtype; under "float64" they are complex128 and float64. Real inputs are
treated as complex ones without an imaginary part.

Axes: B batch, T length, D model width, F width of a dense layer's output, V vocabulary.
"""

import math

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check_choice
from tf_transformer.functional.attention.complex_attention import (
    complex_linear,
    complex_wave,
    to_complex,
    to_real,
)
from tf_transformer.functional.tensors import as_ids, in_vocabulary, nan_outside
from tf_transformer.layers.base_layer import NotesLayer, TakesIds, attributes
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.layers.norms import layer_norm
from tf_transformer.layers.residuals import Dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexLayer(NotesLayer, keras.layers.Layer):
    """Base of the layers that return complex tensors."""

    @property
    def real_dtype(self):
        """str, "float32" or "float64", the dtype of weights and of each part."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def add_weight(self, **kwargs):
        """Add a weight of `real_dtype` that no policy casts."""
        return super().add_weight(dtype=self.real_dtype, autocast=False, **kwargs)

    def as_complex(self, x):
        """Cast an input (..., D) to complex64, or complex128 under "float64"."""
        return tf.cast(x, tf.complex128 if self.real_dtype == "float64" else tf.complex64)

    def parts(self, x):
        """Real and imaginary parts of an input (..., D), concatenated, (..., 2 D)."""
        return to_real(self.as_complex(x))


def check_sizes(**sizes):
    """Check that sizes are positive integers."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError(name, "a positive integer", f"{size!r}")


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexDense(ComplexLayer):
    """Multiply by a complex matrix, add a complex bias, activate both parts separately.

    s(x A - y B + c) + i s(x B + y A + d) for the input x + i y, Wang et al. 2020, equation 10. Each
    part of A + i B starts with half of the variance of Glorot's initialization.

    Args:
        units: int, F; if it is not positive, a ValueError is raised.
        activation: None or a Keras activation s, applied to the real and to the imaginary part.

    Call arguments:
        x: complex or real tensor (..., D); returns (..., F), complex64 (complex128 in float64).

    Example:
        >>> ComplexDense(5)(tf.ones((2, 3), tf.complex64)).dtype
        tf.complex64
    """

    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        check_sizes(units=units)
        self.units = units
        self.activation = keras.activations.get(activation)

    def build(self, x_shape):
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: x_shape[-1]})
        half = keras.initializers.VarianceScaling(0.5, "fan_avg", "uniform")
        shape = x_shape[-1], self.units
        self.kernel_real, self.kernel_imag = (
            self.add_weight(name=f"kernel_{part}", shape=shape, initializer=half.clone())
            for part in ("real", "imag")
        )
        self.bias_real, self.bias_imag = (
            self.add_weight(name=f"bias_{part}", shape=(self.units,), initializer="zeros")
            for part in ("real", "imag")
        )

    def call(self, x):
        weights = self.kernel_real, self.kernel_imag, self.bias_real, self.bias_imag
        a, b, c, d = (tf.convert_to_tensor(weight) for weight in weights)
        outputs = complex_linear(self.parts(x), (a, b), (c, d))  # (..., 2 F)
        return tf.complex(*(self.activation(part) for part in tf.split(outputs, 2, axis=-1)))

    def get_config(self):
        activation = keras.activations.serialize(self.activation)
        return {**super().get_config(), "units": self.units, "activation": activation}


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexDropout(ComplexLayer):
    """Drop real and imaginary parts independently, as in the code of Wang et al. 2020.

    Args:
        rate, seed: see `keras.layers.Dropout`.

    Call arguments:
        x: complex or real tensor of any shape; returns complex64 (complex128 in float64).
        training: bool or None; dropout is only applied if true.

    Example:
        >>> dropped = ComplexDropout(0.5)(tf.fill((9, 11), 1 + 1j), training=True)
        >>> sorted(set(dropped.numpy().real.ravel().tolist()))
        [0.0, 2.0]
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.dropout = Dropout(rate, seed=seed, name="dropout", dtype=self.real_dtype)

    def build(self, x_shape):
        self.dropout.build((*x_shape[:-1], 2 * x_shape[-1]))

    def call(self, x, training=None):
        if not training:
            return self.as_complex(x)
        return to_complex(self.dropout(self.parts(x), training=True))

    def get_config(self):
        return {**super().get_config(), "rate": self.dropout.rate, "seed": self.dropout.seed}


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexLayerNorm(ComplexLayer):
    """Normalize the real and the imaginary part separately, each with its own scale and shift.

    LayerNorm(Re x) + i LayerNorm(Im x), see `LayerNorm`. Differs from Wang et al. 2020, appendix B,
    which normalizes over the batch, and from their code, which has one scale for both parts.

    Args:
        epsilon: float, added to the variances.

    Call arguments:
        x: complex or real tensor (..., D); returns complex64 (complex128 in float64).

    Example:
        >>> ComplexLayerNorm()(tf.constant([[1 + 5j, 3 + 9j]])).numpy().round(3).tolist()
        [[(-1-1j), (1+1j)]]
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        shape = (2, x_shape[-1])
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")

    def call(self, x):
        parts = tf.split(self.parts(x), 2, axis=-1)
        weights = tf.unstack(self.gamma), tf.unstack(self.beta)
        norms = (layer_norm(*each, self.epsilon) for each in zip(parts, *weights, strict=True))
        return tf.complex(*norms)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexFeedForward(ComplexLayer):
    """Two complex dense layers with an activation in between, the same at every position.

    FFN(x) = s(x W_1 + b_1) W_2 + b_2, where s acts on the real and the imaginary part separately;
    Wang et al. 2020, appendix B.

    Args:
        d_model, dff: ints, width D of input and output, and width between the two layers; if one is
            not positive, a ValueError is raised.
        activation: Keras activation s.

    Call arguments:
        x: complex or real tensor (B, T, D); returns complex64 (complex128 in float64).

    Example:
        >>> ComplexFeedForward(8, 32)(tf.ones((1, 3, 8), tf.complex64)).shape.as_list()
        [1, 3, 8]
    """

    def __init__(self, d_model, dff, activation="relu", **kwargs):
        super().__init__(**kwargs)
        check_sizes(d_model=d_model, dff=dff)
        self.d_model, self.dff = d_model, dff
        self.hidden = ComplexDense(dff, activation, name="hidden", dtype=self.dtype_policy)
        self.dense = ComplexDense(d_model, name="dense", dtype=self.dtype_policy)

    def build(self, x_shape):
        self.hidden.build(x_shape)
        self.dense.build((*x_shape[:-1], self.dff))

    def call(self, x):
        return self.dense(self.hidden(x))

    def get_config(self):
        activation = keras.activations.serialize(self.hidden.activation)
        fields = attributes(self, "d_model", "dff")
        return {**super().get_config(), **fields, "activation": activation}


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexToReal(NotesLayer, keras.layers.Layer):
    """A real dense layer over the real and imaginary parts side by side.

    s([Re x, Im x] W + b) with a real matrix W (2 D, F), as in the code for text classification
    published with Wang et al. 2020; its translator projects squared moduli, which have no phase.

    Args:
        units: int, F; if it is not positive, a ValueError is raised.
        activation: None or a Keras activation s.

    Call arguments:
        x: complex tensor (..., D), or a real one.

    Returns:
        float tensor (..., F), in the layer's compute dtype.

    Example:
        >>> ComplexToReal(5)(tf.ones((2, 3, 4), tf.complex64)).shape.as_list()
        [2, 3, 5]
    """

    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        check_sizes(units=units)
        self.dense = FlatDense(units, activation, name="dense", dtype=self.dtype_policy)

    def build(self, x_shape):
        self.dense.build((*x_shape[:-1], 2 * x_shape[-1]))

    def call(self, x):
        return self.dense(to_real(x))

    def get_config(self):
        activation = keras.activations.serialize(self.dense.activation)
        return {**super().get_config(), "units": self.dense.units, "activation": activation}


SCHEMES = ("own", "word-sharing", "dimension-sharing", "zero")


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexEmbedding(TakesIds, ComplexLayer):
    """Represent a word at a position by D complex numbers that rotate as the position grows.

    f(j, pos) = r_j exp(i (w_j pos + theta_j)) for word j, Wang et al. 2020, equation 5. Amplitude
    r, frequency w and initial phase theta are learned. Moving a word by n positions multiplies it
    by exp(i w_j n), wherever it is.

    Each of the three has a scheme: "own", a parameter for each word and dimension (V D);
    "word-sharing", one for each dimension (D); "dimension-sharing", one for each word (V); or
    "zero", the value is 0. The experiments of the paper have `phases="zero"` (table 4);
    `frequencies="zero"` is its "complex-vanilla", which ignores positions.

    Args:
        vocab_size, d_model: ints, V and D.
        amplitudes: str, the scheme of r, not "zero"; starts from N(0, 1).
        frequencies: str, the scheme of w, radians per position; starts from 10000^(-d / D) in
            dimension d, the sinusoids of the Transformer of width 2 D, or 1 if dimensions share.
        phases: str, the scheme of theta, radians; starts uniform in [-pi, pi].

    Call arguments:
        ids: integer tensor (B, T). Padding is embedded like any word: mask it in attention.
        start: int or scalar integer tensor, the position of the first token; 1 by default, as in
            the paper's appendix C.

    Returns:
        complex64 tensor (B, T, D), complex128 in float64.

    Raises:
        ValueError: If a size is not a positive integer, a scheme is unknown, ids are not whole
            numbers, or, in eager mode, out of range; see `TokenEmbedding` for graphs.

    Differs from the paper, which also reduces phases modulo 2 pi after each step. Its section 3.1
    swaps the two ways of sharing; table 4 has them as here.

    Example:
        >>> embedding = ComplexEmbedding(11, 8, frequencies="word-sharing", phases="zero")
        >>> embedding(tf.constant([[5, 6, 5]])).shape.as_list(), embedding.count_params()
        ([1, 3, 8], 96)
    """

    def __init__(
        self, vocab_size, d_model, amplitudes="own", frequencies="own", phases="own", **kwargs
    ):
        super().__init__(**kwargs)
        check_sizes(vocab_size=vocab_size, d_model=d_model)
        check_choice("amplitudes", amplitudes, SCHEMES[:-1])
        check_choice("frequencies", frequencies, SCHEMES)
        check_choice("phases", phases, SCHEMES)
        self.vocab_size, self.d_model = vocab_size, d_model
        self.amplitudes, self.frequencies, self.phases = amplitudes, frequencies, phases

    def build(self, ids_shape):
        normal = keras.initializers.RandomNormal(stddev=1.0)
        uniform = keras.initializers.RandomUniform(-math.pi, math.pi)
        self.amplitude = self._table("amplitude", self.amplitudes, normal)
        self.frequency = self._table("frequency", self.frequencies, _sinusoids)
        self.phase = self._table("phase", self.phases, uniform)

    def _table(self, name, scheme, initializer):
        if scheme == "zero":
            return None
        words = 1 if scheme == "word-sharing" else self.vocab_size
        width = 1 if scheme == "dimension-sharing" else self.d_model
        return self.add_weight(name=name, shape=(words, width), initializer=initializer)

    def call(self, ids, start=1):
        ids = in_vocabulary(as_ids(ids, self.ids_name), self.vocab_size, self.ids_name)
        position = tf.expand_dims(start + tf.range(tf.shape(ids)[-1]), 1)  # (T, 1)
        tables = (self.amplitude, self.frequency, self.phase)
        amplitude, *angles = (self._rows(table, ids) for table in tables)
        amplitude += nan_outside(ids, self.vocab_size, self.real_dtype)
        wave = complex_wave(amplitude, *angles, position)
        shape = tf.concat([tf.shape(ids), [self.d_model]], 0)
        wave = tf.broadcast_to(wave, shape)  # (B, T, D), also if everything is shared
        wave.set_shape((*ids.shape, self.d_model))
        return wave

    def _rows(self, table, ids):
        """The parameters of each word, (B, T, D or 1), or (1, D) if words share them."""
        if table is None:
            return tf.zeros((1, 1), self.real_dtype)
        return tf.gather(table, ids) if table.shape[0] > 1 else tf.convert_to_tensor(table)

    def get_config(self):
        fields = attributes(self, "vocab_size", "d_model", "amplitudes", "frequencies", "phases")
        return {**super().get_config(), **fields}


def _sinusoids(shape, dtype):
    """10000^(-d / D), the same for all words."""
    exponents = -np.arange(shape[1]) / shape[1]
    return tf.cast(np.broadcast_to(10000.0**exponents, shape), dtype)
