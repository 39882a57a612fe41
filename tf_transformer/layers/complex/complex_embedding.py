"""Word embeddings that are waves over positions.

Axes: B batch, T length, D model width, V vocabulary.
"""

import difflib
import math

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.complex_numbers import complex_wave
from tf_transformer.functional.ids import as_ids, in_vocabulary, nan_outside
from tf_transformer.layers.complex.complex_layer import ComplexLayer, check_sizes
from tf_transformer.layers.takes_ids import TakesIds

SCHEMES = ("own", "word-sharing", "dimension-sharing", "zero")


@keras.saving.register_keras_serializable(package="tf_transformer")
class ComplexEmbedding(TakesIds, ComplexLayer):
    """Represent a word at a position by D complex numbers that turn as the position grows.

    f(j, pos) = r_j exp(i (w_j pos + theta_j)) for word j, Wang et al. 2020, "Encoding Word Order in
    Complex Embeddings", equation 5. Amplitude r, frequency w and initial phase theta are learned.
    Moving a word by n positions multiplies it by exp(i w_j n), wherever it is.

    Each of the three has a scheme, which says what shares a parameter:

    | scheme | parameters | table |
    |---|---|---|
    | "own" | V D | one for each word and dimension |
    | "word-sharing" | D | one for each dimension, the same for all words |
    | "dimension-sharing" | V | one for each word, the same for all its dimensions |
    | "zero" | 0 | 0, not learned |

    The experiments of the paper have `phases="zero"`: initial phases made its accuracy worse (table
    4). `frequencies="zero"` is its "complex-vanilla", which does not know positions. With both
    "zero" this is a plain embedding.

    Args:
        vocab_size: int, V.
        d_model: int, D.
        amplitudes: str, the scheme of r, not "zero"; starts from N(0, 1).
        frequencies: str, the scheme of w, radians per position; starts from 10000^(-d / D) in
            dimension d, the sinusoids of the Transformer of width 2 D, or 1 if dimensions share.
        phases: str, the scheme of theta, radians; starts uniform in [-pi, pi].

    Call arguments:
        ids: integer tensor (B, T). Padding is embedded like any word: mask it in attention.
        start: int or scalar integer tensor, the position of the first token; 1 by default, as in
            the paper's appendix C.

    Returns:
        (B, T, D), complex64, or complex128 under the policy "float64".

    Raises:
        ValueError: If `vocab_size` or `d_model` is not a positive integer, a scheme is unknown, the
            ids are not whole numbers, or, in eager mode, out of range; see `TokenEmbedding` for
            graphs.

    Differs from the paper: section 3.1 lists the parameters of the two ways of sharing in the other
    order; those of table 4 are these. The paper reduces phases modulo 2 pi after each step, which
    does not change the embedding.

    Example:
        >>> embedding = ComplexEmbedding(11, 8, frequencies="word-sharing", phases="zero")
        >>> embedding(tf.constant([[5, 6, 5]])).shape.as_list(), embedding.count_params()
        ([1, 3, 8], 96)
    """

    def __init__(
        self,
        vocab_size,
        d_model,
        amplitudes="own",
        frequencies="own",
        phases="own",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(vocab_size=vocab_size, d_model=d_model)
        _check_scheme("amplitudes", amplitudes, SCHEMES[:-1])
        _check_scheme("frequencies", frequencies, SCHEMES)
        _check_scheme("phases", phases, SCHEMES)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.amplitudes = amplitudes
        self.frequencies = frequencies
        self.phases = phases

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
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "amplitudes": self.amplitudes,
            "frequencies": self.frequencies,
            "phases": self.phases,
        }


def _check_scheme(name, scheme, schemes):
    if scheme not in schemes:
        close = difflib.get_close_matches(str(scheme), schemes, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ArgumentError(name, f"one of {', '.join(schemes)}", f"{scheme!r}{hint}")


def _sinusoids(shape, dtype):
    """10000^(-d / D), the same for all words."""
    exponents = -np.arange(shape[1]) / shape[1]
    return tf.cast(np.broadcast_to(10000.0**exponents, shape), dtype)
