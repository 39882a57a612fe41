"""Cached attention steps equal the rows of causal attention."""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from attention_plans import every_dtype, near, normal, some_inputs

from tf_transformer import scaled_dot_product_attention
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.scaled_dot_product import cached_attention

pytestmark = pytest.mark.one_of(3, "core")


@pytest.mark.one_of(10)
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
    # The contents of the cache from position t on must not matter.
    cache = tuple(tf.cast(tf.fill((2, 3, 11, 4), number), dtype) for number in (173.0, -3e4))
    for t in range(11):
        at = slice(t, t + 1)
        row = None if bias is None else bias[:, :, at]
        new = q[:, :, at], k[:, :, at], v[:, :, at]
        output, cache = cached_attention(*new, cache, tf.constant(t), bias=row, jit=jit)
        near(output, expected[:, :, at], dtype)
    np.testing.assert_array_equal(tf.cast(cache[0], tf.float32), tf.cast(k, tf.float32))
    np.testing.assert_array_equal(tf.cast(cache[1], tf.float32), tf.cast(v, tf.float32))


@pytest.mark.parametrize("jit", [True, False])
def test_several_positions_at_once_are_causal_too(jit):
    q, k, v, _ = some_inputs("float32", t=11)
    future = np.arange(11) > np.arange(11)[:, None]
    expected, _ = ref.scaled_dot_product_attention(q.numpy(), k.numpy(), v.numpy(), future, 0.0)
    cache = (tf.fill((2, 3, 17, 4), 173.0),) * 2  # longer than the input
    for start, end in ((0, 1), (1, 3), (3, 8), (8, 11)):
        new = (x[:, :, start:end] for x in (q, k, v))
        output, cache = cached_attention(*new, cache, tf.constant(start), jit=jit)
        near(output, expected[:, :, start:end], "float32")


@pytest.mark.parametrize("jit", [True, False])
def test_a_mask_says_which_slots_are_seen(jit):
    q, k, v, _ = some_inputs("float32", t=11)
    rng = np.random.default_rng(5)
    cache = (tf.fill((2, 3, 13, 4), 173.0),) * 2
    # The last three of eleven positions attend only to some of the filled slots.
    for start, end in ((0, 8), (8, 11)):
        new = [x[:, :, start:end] for x in (q, k, v)]
        seen = rng.random((2, 1, end - start, 13)) < 0.5
        seen[..., end:] = False
        seen[..., start] = True
        output, cache = cached_attention(*new, cache, tf.constant(start), seen, jit=jit)
    expected, _ = ref.scaled_dot_product_attention(
        new[0].numpy(), k.numpy(), v.numpy(), ~seen[..., :11], 0.0
    )
    near(output, expected, "float32")


@pytest.mark.one_of(10)
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("window", [1, 3, 20])
def test_a_window_is_that_of_the_full_call(jit, window):
    q, k, v, _ = some_inputs("float32", t=11)
    expected, _ = ref.windowed_attention(q, k, v, window, causal=True)
    full, _ = scaled_dot_product_attention(q, k, v, causal=True, window=window)
    near(full, expected, "float32")
    cache = (tf.fill((2, 3, 13, 4), 173.0),) * 2
    for start, end in ((0, 1), (1, 3), (3, 8), (8, 11)):
        new = (x[:, :, start:end] for x in (q, k, v))
        output, cache = cached_attention(*new, cache, tf.constant(start), window=window, jit=jit)
        near(output, expected[:, :, start:end], "float32")


@pytest.mark.parametrize("jit", [True, False])
def test_a_window_counts_the_given_distances_and_meets_the_mask(jit):
    """The slots alternate between the tokens of two branches; each query sees its own branch."""
    q, k, v, _ = some_inputs("float32", t=11)
    slots = np.arange(11)
    distances = slots[np.newaxis] // 2 - slots[8:, np.newaxis] // 2  # (3, 11)
    seen = (slots % 2 == slots[8:, np.newaxis] % 2) & (distances <= 0)
    seen = np.broadcast_to(seen, (2, 1, 3, 11)).copy()
    seen[1, 0, :, 6:8] = False
    cache = k, v
    new = [x[:, :, 8:] for x in (q, k, v)]
    output, _ = cached_attention(
        *new, cache, tf.constant(8), seen, distances=tf.constant(distances), window=2, jit=jit
    )
    blocked = ~seen | (distances < -2)
    expected, _ = ref.scaled_dot_product_attention(q[:, :, 8:], k, v, blocked)
    near(output, expected, "float32")
    wider, _ = cached_attention(
        *new, cache, tf.constant(8), seen, distances=tf.constant(distances), window=3, jit=jit
    )
    assert np.any(wider != output)


@pytest.mark.parametrize("name", ["keys", "values"])
def test_new_positions_fit_the_cache(name):
    arguments = dict.fromkeys(("q", "keys", "values"), tf.zeros((2, 3, 1, 4)))
    cache = (tf.zeros((2, 3, 11, 4)),) * 2
    for shape in ((2, 3, 2, 4), (2, 3, 1, 5), (2, 1, 4)):
        with pytest.raises(ValueError, match=f"{name}: expected shape .* to match q and the cache"):
            cached_attention(**{**arguments, name: tf.zeros(shape)}, cache=cache, slot=0)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("slot", [-1, 10, 11])
def test_new_positions_have_slots_in_the_cache(slot, jit):
    new, cache = tf.zeros((2, 3, 2, 4)), (tf.zeros((2, 3, 11, 4)),) * 2
    cached_attention(new, new, new, cache, 9, jit=jit)
    with pytest.raises(ValueError, match="slot: expected a slot from 0 on with room for all new"):
        cached_attention(new, new, new, cache, slot, jit=jit)
    attend = tf.function(lambda slot: cached_attention(new, new, new, cache, slot, jit=jit)[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="slot: expected a slot from 0 on"):
        attend(tf.constant(slot))


def test_queries_have_the_width_of_the_cache():
    new, cache = tf.zeros((2, 3, 1, 4)), (tf.zeros((2, 3, 11, 4)),) * 2
    with pytest.raises(ValueError, match="q: expected shape .* to match q and the cache"):
        cached_attention(tf.zeros((2, 3, 1, 5)), new, new, cache, 0)


@pytest.mark.parametrize("jit", [True, False])
def test_no_bias_frees_a_blocked_slot(jit):
    q, k, v, _ = some_inputs(t=1, s=5)
    mask = tf.range(5) == 2
    table = ByDistance(tf.fill((3, 3), -np.inf))
    for bias in (tf.fill((1, 1, 1, 5), -np.inf), table):
        slot, new = tf.constant(0), (k[:, :, :1], v[:, :, :1])
        output, _ = cached_attention(q, *new, (k, v), slot, mask[tf.newaxis], bias, jit=jit)
        np.testing.assert_allclose(output, v[:, :, 2:3], rtol=1e-6)
