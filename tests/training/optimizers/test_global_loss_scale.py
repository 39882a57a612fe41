"""Loss scaling: a step that overflows changes nothing, the others are those without a scale.

On several replicas: tests/models/test_replicas.py; workers: tests/distribution.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import FusedAdam, GlobalLossScale

OPTIONS = {"learning_rate": 0.1, "use_ema": True, "global_clipnorm": 0.5, "weight_decay": 0.01}


def weights():
    return [keras.Variable(np.ones(shape, np.float32)) for shape in ((5, 1), (2,))]


def gradients(step, scale=1.0):
    """Those of an embedding, with one row twice, and of a bias."""
    rows = scale * tf.stack([[1.0], [-2.0], [step]])
    return [tf.IndexedSlices(rows, tf.constant([1, 4, 1]), tf.constant([5, 1])), rows[:2, 0]]


def values(variables):
    return [variable.numpy() for variable in variables]


@pytest.fixture(params=["eager", "graph", "xla"])
def scaled(request):
    """Two weights, their optimizer, and a step with gradients in its scale."""
    own = weights()
    optimizer = GlobalLossScale(FusedAdam(**OPTIONS), initial_scale=8.0, dynamic_growth_steps=3)
    optimizer.build(own)

    def step(number):
        optimizer.apply(gradients(number, optimizer.scale_loss(1.0)), own)

    if request.param != "eager":
        step = tf.function(step, jit_compile=request.param == "xla")
    return own, optimizer, step


@pytest.mark.one_of(6)
def test_steps_are_those_without_a_scale_which_grows(scaled):
    own, optimizer, step = scaled
    plain, others = FusedAdam(**OPTIONS), weights()
    for number in range(1, 8):
        step(tf.constant(float(number)))
        plain.apply(gradients(float(number)), others)
        assert float(optimizer.dynamic_scale) == 8.0 * 2 ** (number // 3)
        assert int(optimizer.step_counter) == number % 3
    inner = optimizer.inner_optimizer.variables
    for one, other in zip([*own, *inner], [*others, *plain.variables], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.one_of(10)
@pytest.mark.fault
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_that_overflows_changes_the_scale_alone(scaled, bad):
    own, optimizer, step = scaled
    for number in (1.0, 2.0):
        step(tf.constant(number))
    before = values([*own, *optimizer.inner_optimizer.variables])
    step(tf.constant(bad, tf.float32))
    assert float(optimizer.dynamic_scale) == 4.0 and int(optimizer.step_counter) == 0
    for one, other in zip(
        values([*own, *optimizer.inner_optimizer.variables]), before, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    for number in (1.0, 2.0, 3.0):
        step(tf.constant(number))
    assert float(optimizer.dynamic_scale) == 8.0 and int(optimizer.iterations) == 5
    assert not np.array_equal(own[0], before[0])


def test_it_goes_through_a_config_and_wraps_no_other_optimizer():
    optimizer = GlobalLossScale(FusedAdam(0.25), initial_scale=4.0, dynamic_growth_steps=7)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(again) is GlobalLossScale and again.inner_optimizer.sums_done
    assert again.get_config() == optimizer.get_config()
    with pytest.raises(ValueError, match="inner_optimizer: expected a FusedAdam, got SGD"):
        GlobalLossScale(keras.optimizers.SGD())
