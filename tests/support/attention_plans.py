"""Attention plans and ways to run them, shared by the attention tests.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import AttentionPlan, scaled_dot_product_attention

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}
# Tiles that do not divide the lengths below, a single tile, and tiles one key wide.
PLANS = {
    "whole": "whole",
    "rowwise 30": AttentionPlan("rowwise", most_scores=30),
    "rowwise 160": AttentionPlan("rowwise", most_scores=160),
    "blockwise 2x3": AttentionPlan("blockwise", query_block=2, key_block=3),
    "blockwise 64x64": AttentionPlan("blockwise", query_block=64, key_block=64),
    "blockwise 3x1": AttentionPlan("blockwise", query_block=3, key_block=1),
    "windowed 3": AttentionPlan("windowed", query_block=3, most_scores=60),
    "windowed 64": AttentionPlan("windowed", query_block=64),
}
SOME_PLANS = ["whole", "rowwise 30", "blockwise 2x3", "windowed 3"]
every_plan = pytest.mark.parametrize("plan", SOME_PLANS)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)
every_path = pytest.mark.parametrize("name", ["eager", "graph", "xla"])


def options_of(plan):
    """Return the options for a plan: "windowed" with a window that blocks nothing."""
    return {"plan": PLANS[plan], "window": 1000 if plan.startswith("windowed") else None}


def attend_with_gradients(q, k, v, mask, bias, cotangent, **options):
    """Return output and gradients of sum(output * cotangent) w.r.t. q, k, v and any bias."""
    inputs = [q, k, v] if bias is None else [q, k, v, bias]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output, _ = scaled_dot_product_attention(
            q, k, v, mask, bias=bias, return_attention_weights=False, **options
        )
        projected = tf.reduce_sum(tf.cast(output * cotangent, tf.float32))
    return output, tape.gradient(projected, inputs)


@functools.cache
def path(name, plan, **options):
    """Return `attend_with_gradients` in eager mode, in a graph, in XLA, or with an XLA core.

    The last two run the same forms of the core in one program and in two.
    """
    jit = {"xla": "auto", "core_xla": True}.get(name, False)
    options = {**options_of(plan), **options}
    run = functools.partial(attend_with_gradients, jit=jit, **options)
    if name in ("eager", "core_xla"):
        return run
    return tf.function(run, autograph=False, jit_compile=name == "xla")


def near(actual, expected, dtype):
    """Check contract point 5 for N(0, 1) inputs, whose results are of order 1 or smaller."""
    actual, tolerance = tf.cast(actual, tf.float64), TOLERANCE[dtype]
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def normal(*shape, seed=3, dtype="float32"):
    return tf.cast(np.random.default_rng(seed).standard_normal(shape), dtype)


def some_inputs(dtype="float32", t=7, s=11):
    """Return q, k, v and a cotangent of the output; t != s, both prime."""
    q, g = (normal(2, 3, t, 4, seed=seed, dtype=dtype) for seed in (0, 1))
    k, v = (normal(2, 3, s, 4, seed=seed, dtype=dtype) for seed in (2, 3))
    return q, k, v, g
