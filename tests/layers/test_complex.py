"""Complex embeddings: the equation, its laws, parameters of every scheme, bad input.

Axes: B=2 batch, T=5 length, D=7 width, V=11 vocabulary.
"""

import itertools

import keras
import numpy as np
import pytest
import reference_complex as ref
import tensorflow as tf

from tf_transformer import ComplexEmbedding
from tf_transformer.functional.positions import sinusoidal_positions

pytestmark = pytest.mark.one_of(10)  # of the cases of each test

V, D = 11, 7
IDS = np.array([[5, 0, 6, 7, 5], [7, 8, 0, 0, 10]], np.int32)
TABLES = {
    "own": (V, D),
    "word-sharing": (1, D),
    "dimension-sharing": (V, 1),
    "zero": None,
}
SCHEMES = [s for s in itertools.product(TABLES, repeat=3) if s[0] != "zero"]
every_choice = pytest.mark.parametrize("schemes", SCHEMES, ids=", ".join)


def embedding(*schemes, **options):
    """A built layer whose weights are N(0, 1)."""
    layer = ComplexEmbedding(V, D, *schemes, **options)
    layer.build((None, None))
    rng = np.random.default_rng(3)
    layer.set_weights([rng.standard_normal(weight.shape) for weight in layer.get_weights()])
    return layer


def tables(layer):
    found = {name: getattr(layer, name) for name in ("amplitude", "frequency", "phase")}
    return {name: 0.0 if table is None else table.numpy() for name, table in found.items()}


@pytest.mark.one_of(10)
@every_choice
def test_values_and_parameters_of_every_choice(schemes):
    layer = embedding(*schemes)
    output = layer(IDS)
    assert output.dtype == tf.complex64
    np.testing.assert_allclose(output, ref.embedding(tables(layer), IDS, D), rtol=1e-5, atol=1e-5)
    shapes = [TABLES[scheme] for scheme in schemes if scheme != "zero"]
    assert [tuple(weight.shape) for weight in layer.weights] == shapes
    assert layer.count_params() == sum(np.prod(shape) for shape in shapes)


@pytest.mark.one_of(10)
@every_choice
def test_a_shift_multiplies_by_a_phase_factor_that_no_position_changes(schemes):
    """f(j, pos + n) = f(j, pos) exp(i w_j n): the paper's property 1."""
    layer = embedding(*schemes, dtype="float64")
    shift = 3
    first, later = layer(IDS), layer(IDS, 1 + shift)
    frequency = np.broadcast_to(tables(layer)["frequency"], (V, D))[IDS]
    np.testing.assert_allclose(later, first * np.exp(1j * frequency * shift), atol=1e-12)
    np.testing.assert_allclose(np.abs(later), np.abs(first), atol=1e-12)


def test_the_modulus_is_the_amplitude_at_every_position():
    layer = embedding()
    same = np.full((1, 50), 4)
    amplitude = np.broadcast_to(np.abs(layer.amplitude.numpy()[4]), (1, 50, D))
    np.testing.assert_allclose(np.abs(layer(same)), amplitude, rtol=1e-5)


def test_positions_start_at_one_as_in_the_paper():
    layer = embedding()
    np.testing.assert_array_equal(layer(IDS), layer(IDS, 1))
    np.testing.assert_allclose(layer(IDS, 0), ref.embedding(tables(layer), IDS, D, 0), atol=1e-5)
    part = layer(IDS[:, 2:], start=tf.constant(3))
    np.testing.assert_allclose(part, layer(IDS)[:, 2:], atol=1e-6)


def test_without_frequencies_and_phases_it_is_a_plain_embedding():
    layer = embedding("own", "zero", "zero")
    plain = keras.layers.Embedding(V, D)
    plain.build((None, None))
    plain.set_weights(layer.get_weights())
    np.testing.assert_array_equal(np.real(layer(IDS)), plain(IDS))
    assert not np.imag(layer(IDS)).any()
    full = embedding()
    for table in (full.frequency, full.phase):
        table.assign(np.zeros(table.shape))
    full.amplitude.assign(layer.amplitude)
    np.testing.assert_array_equal(full(IDS), layer(IDS))


def test_the_initial_frequencies_are_the_sinusoids_of_the_transformer():
    """PE_2k = Im f_k and PE_(2k+1) = Re f_k for amplitude 1 and phase 0: equation 8."""
    layer = ComplexEmbedding(V, D, frequencies="word-sharing", phases="zero")
    layer.build((None, None))
    layer.amplitude.assign(np.ones((V, D)))
    wave = layer(np.full((1, 300), 4), start=0).numpy()[0]
    interleaved = np.stack([wave.imag, wave.real], -1).reshape(300, 2 * D)
    np.testing.assert_allclose(interleaved, sinusoidal_positions(300, 2 * D), atol=1e-5)


def test_the_differences_between_parameter_counts_are_those_of_table_4():
    """The Transformer on SST, D = 256; the published numbers are rounded to 10,000 parameters."""
    words, width = 13940, 256

    def millions(**schemes):
        shape = {
            "own": words * width,
            "word-sharing": width,
            "dimension-sharing": words,
            "zero": 0,
        }
        given = {"amplitudes": "own", "frequencies": "own", "phases": "zero"} | schemes
        layer = ComplexEmbedding(3, 5, **given)
        return sum(shape[getattr(layer, name)] for name in given) / 1e6

    rest = 8.33 - millions()  # with W^Q, W^K, W^V shared between the parts
    for published, schemes in (
        (11.89, {"phases": "own"}),
        (4.77, {"frequencies": "dimension-sharing"}),
        (4.76, {"frequencies": "word-sharing"}),
        (4.77, {"amplitudes": "dimension-sharing"}),
        (4.76, {"amplitudes": "word-sharing"}),
        (8.33, {"frequencies": "zero", "phases": "own"}),
    ):
        assert abs(rest + millions(**schemes) - published) < 0.01


def test_far_positions_are_as_accurate_as_near_ones():
    layer = embedding()
    expected = ref.embedding(tables(layer), IDS, D, 1_000_000)
    np.testing.assert_allclose(layer(IDS, 1_000_000), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("path", ["eager", "graph", "xla"])
def test_gradients_are_those_of_the_equation(path):
    layer, rng = embedding(dtype="float64"), np.random.default_rng(5)
    cotangent = rng.standard_normal((2, 2, 5, D))

    def gradients():
        with tf.GradientTape() as tape:
            wave = layer(tf.constant(IDS), 40)
            parts = tf.stack([tf.math.real(wave), tf.math.imag(wave)])
            loss = tf.reduce_sum(parts * cotangent)
        variables = [weight.value for weight in layer.weights]
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    if path != "eager":
        gradients = tf.function(gradients, autograph=False, jit_compile=path == "xla")

    def loss_at(tables):
        wave = ref.embedding(tables, IDS, D, 40)
        return np.sum(np.stack([wave.real, wave.imag]) * cotangent)

    start = tables(layer)
    for name, gradient in zip(start, gradients(), strict=True):
        direction, step = rng.standard_normal((V, D)), 1e-6
        ends = [loss_at(start | {name: start[name] + s * direction}) for s in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, D), "vocab_size: expected a positive integer, got 0"),
        ((V, 0), "d_model: expected a positive integer, got 0"),
        ((V, -3), "d_model: .*got -3"),
        ((V, 2.5), "d_model: .*got 2.5"),
        ((True, D), "vocab_size: .*got True"),
        ((V, D, "zero"), "amplitudes: expected one of own, word-sharing, dimension-sharing, got"),
        ((V, D, "own", "word_sharing"), r"frequencies: .*\(did you mean 'word-sharing'\?\)"),
        ((V, D, "own", "own", "dimension"), r"phases: .*\(did you mean 'dimension-sharing'\?\)"),
        ((V, D, "own", "own", None), "phases: .*zero, got None"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ComplexEmbedding(*arguments)


def test_ids_that_are_not_integers():
    layer = ComplexEmbedding(V, D)
    for ids in (IDS.astype(np.float16), IDS > 0, IDS + 0.5, keras.Input((5,), dtype="bfloat16")):
        with pytest.raises(ValueError, match="ids: expected (integers|whole numbers)"):
            layer(ids)
    assert not layer.built
    np.testing.assert_array_equal(layer(IDS.astype(np.int64)), layer(IDS))
