"""Run every layer through the same harness.

Axes: F=11 units.
"""

import keras
import layer_harness as harness
import pytest
import tensorflow as tf
from layer_cases import CASES, F
from layer_harness import Case

pytestmark = pytest.mark.one_of(10, "layers")

# Combinations of what other cases have alone, and layers with many tests of their own.
COMBINED = (
    "AdditiveAttention",
    "BilinearAttention",
    "Complex",
    "Encoder, causal",
    "EncoderLayer, grouped",
    "EncoderLayer, Macaron",
    "LanguageModel",
    "MultiHeadAttention, multi-query",
    "Transformer, grouped",
    "Transformer, Macaron",
)
every_layer = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.one_of(8 if name.startswith(COMBINED) else 2))
        for name, case in CASES.items()
    ],
    ids=CASES,
)


@pytest.mark.one_of(10)
@every_layer
def test_eager_and_xla_agree(case):
    harness.check_compiled(case)


@pytest.mark.one_of(10)
@every_layer
def test_graph_and_saved_model_agree_at_every_length(case, tmp_path):
    harness.check_saved_model(case, tmp_path)


@pytest.mark.one_of(10)
@every_layer
def test_inside_a_functional_model_at_every_length(case):
    harness.check_symbolic(case)


# Keras 3.15.1 saves a variable with np.array(variable), whose __array__ NumPy 2 deprecates.
@pytest.mark.one_of(10)
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
@every_layer
def test_saved_as_keras_file(case, tmp_path):
    harness.check_keras_file(case, tmp_path)


@pytest.mark.one_of(6)
@every_layer
def test_config_round_trip(case):
    harness.check_config(case)


@every_layer
def test_every_variable_has_a_finite_gradient(case):
    harness.check_gradients(case)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
@every_layer
def test_under_every_dtype_policy(case, policy):
    harness.check_policy(case, policy)


# The harness itself must fail on a faulty layer


class Wrong(keras.layers.Dense):
    """Differs in a graph, loses its config, and has a variable that the loss does not use."""

    def build(self, x_shape):
        super().build(x_shape)
        self.unused = self.add_weight(shape=(), name="unused")

    def call(self, x):
        return super().call(x) + (0.0 if tf.executing_eagerly() else 1.0)

    def get_config(self):
        return {**super().get_config(), "units": 3}


WRONG = Case(lambda **kwargs: Wrong(F, **kwargs), CASES["Positional_Encoding"].calls)


def test_the_harness_catches_a_wrong_layer(tmp_path):
    with pytest.raises(AssertionError, match="Mismatched elements"):
        harness.check_compiled(WRONG)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        harness.check_saved_model(WRONG, tmp_path)
    with pytest.raises(AssertionError, match="unused has no gradient"):
        harness.check_gradients(WRONG)
    with pytest.raises((AssertionError, TypeError)):
        harness.check_config(WRONG)
