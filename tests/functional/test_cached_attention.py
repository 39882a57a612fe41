"""One cached step against the rows of causal attention."""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from attention_plans import every_dtype, near, normal, some_inputs

from tf_transformer.functional.cached_attention import cached_attention


@every_dtype
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_cached_steps_give_the_rows_of_causal_attention(dtype, jit, with_bias):
    q, k, v, _ = some_inputs(dtype, t=11)
    bias = normal(2, 1, 11, 11, seed=7) if with_bias else None
    exact = [tf.cast(x, tf.float64).numpy() for x in (q, k, v)]
    future = np.arange(11) > np.arange(11)[:, None]
    given = 0.0 if bias is None else bias.numpy().astype(np.float64)
    expected, _ = ref.scaled_dot_product_attention(*exact, future, given)
    # What stands in the cache from `position` on must not matter.
    cache = tuple(tf.cast(tf.fill((2, 3, 11, 4), number), dtype) for number in (173.0, -3e4))
    for t in range(11):
        at = slice(t, t + 1)
        row = None if bias is None else bias[:, :, at]
        new = q[:, :, at], k[:, :, at], v[:, :, at]
        output, cache = cached_attention(*new, cache, tf.constant(t), row, jit=jit)
        near(output, expected[:, :, at], dtype)
    np.testing.assert_array_equal(tf.cast(cache[0], tf.float32), tf.cast(k, tf.float32))
    np.testing.assert_array_equal(tf.cast(cache[1], tf.float32), tf.cast(v, tf.float32))


@pytest.mark.parametrize("name", ["q", "keys", "values"])
def test_a_step_takes_one_position(name):
    arguments = dict.fromkeys(("q", "keys", "values"), tf.zeros((2, 3, 1, 4)))
    cache = (tf.zeros((2, 3, 11, 4)),) * 2
    for shape in ((2, 3, 2, 4), (2, 3, 1, 5), (2, 1, 4)):
        with pytest.raises(ValueError, match=f"{name}: expected one position of the cache"):
            cached_attention(**{**arguments, name: tf.zeros(shape)}, cache=cache, position=0)
