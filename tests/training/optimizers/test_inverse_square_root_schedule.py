"""The learning rate schedule of the paper."""

import keras
import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf

from tf_transformer import InverseSquareRootSchedule


def test_the_schedule_matches_the_reference_one_step_on():
    schedule = InverseSquareRootSchedule(d_model=14, warmup_steps=7)
    steps = np.array([0, 1, 5, 6, 7, 8, 100, 100_000])
    expected = [ref.warmup_schedule(step + 1, 14, 7) for step in steps]
    np.testing.assert_allclose([schedule(int(step)) for step in steps], expected, rtol=1e-6)


def test_the_first_step_moves_and_the_peak_is_at_the_end_of_the_warm_up():
    schedule = InverseSquareRootSchedule(d_model=64, warmup_steps=100)
    rates = [float(schedule(tf.constant(step))) for step in range(200)]
    assert rates[0] > 0
    assert np.argmax(rates) == 99
    assert np.isclose(rates[99], 64**-0.5 * 100**-0.5)


def test_scale_multiplies_and_defaults_are_those_of_the_paper():
    plain, double = InverseSquareRootSchedule(512), InverseSquareRootSchedule(512, scale=2.0)
    assert np.isclose(double(5), 2 * float(plain(5)))
    assert np.isclose(plain(0), ref.warmup_schedule(1, 512, 4000))
    assert plain(tf.constant(3, tf.int64)).dtype == tf.float32


def test_the_schedule_goes_through_a_config_and_drives_an_optimizer():
    schedule = InverseSquareRootSchedule(14, warmup_steps=7, scale=0.5)
    config = keras.saving.serialize_keras_object(schedule)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == schedule.get_config()
    weight = keras.Variable(1.0)
    optimizer = keras.optimizers.SGD(again)
    optimizer.build([weight])
    optimizer.apply([tf.constant(1.0)])
    assert np.isclose(weight, 1.0 - 0.5 * ref.warmup_schedule(1, 14, 7))
    assert np.isclose(optimizer.learning_rate, 0.5 * ref.warmup_schedule(2, 14, 7))


@pytest.mark.parametrize(("name", "value"), [("d_model", 0), ("warmup_steps", -3), ("scale", 0.0)])
def test_what_is_not_positive_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a positive number, got {value}"):
        InverseSquareRootSchedule(**{"d_model": 14, name: value})
