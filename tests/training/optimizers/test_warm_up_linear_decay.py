"""BERT's learning rate schedule: warm-up to the peak, then linear decay to zero."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import WarmUpLinearDecay


def test_it_rises_to_the_peak_and_falls_to_zero_along_two_lines():
    schedule = WarmUpLinearDecay(peak=3e-4, warmup_steps=7, total_steps=29)
    rates = [float(schedule(tf.constant(step, tf.int64))) for step in range(31)]
    rising, falling = np.arange(1, 8) / 7, np.arange(22, 0, -1) / 22
    expected = 3e-4 * np.concatenate([rising, falling, [0, 0]])
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_without_a_warm_up_it_begins_at_the_peak():
    schedule = WarmUpLinearDecay(2.0, warmup_steps=0, total_steps=4)
    assert [float(schedule(step)) for step in range(5)] == [2.0, 1.5, 1.0, 0.5, 0.0]


def test_it_goes_through_a_config_and_drives_an_optimizer():
    schedule = WarmUpLinearDecay(0.5, warmup_steps=2, total_steps=5)
    config = keras.saving.serialize_keras_object(schedule)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == schedule.get_config()
    weight = keras.Variable(1.0)
    optimizer = keras.optimizers.SGD(again)
    optimizer.build([weight])
    optimizer.apply([tf.constant(1.0)])
    assert float(weight) == 0.75 and float(optimizer.learning_rate) == 0.5


@pytest.mark.parametrize("peak", [0, -1e-3, float("nan")])
def test_a_peak_that_is_not_positive_is_refused(peak):
    with pytest.raises(ValueError, match="peak: expected a positive learning rate, got"):
        WarmUpLinearDecay(peak, 1, 2)


@pytest.mark.parametrize(("warm_up", "total"), [(-1, 5), (5, 5), (0, 0)])
def test_steps_that_leave_no_room_are_refused(warm_up, total):
    with pytest.raises(ValueError, match=f"warmup_steps < total_steps, got {warm_up} and {total}"):
        WarmUpLinearDecay(1.0, warm_up, total)
