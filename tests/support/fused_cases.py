"""Cases of fused attention, for a stand-in and for cuDNN itself.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import numpy as np
import reference_numpy as ref
import tensorflow as tf
from attention_plans import near, normal
from reference_gradients import attention_gradients

from tf_transformer import scaled_dot_product_attention

B, N, H = 3, 2, 8


def inputs(t, s, dtype="bfloat16", width=H):
    q, g = (normal(B, N, t, width, seed=seed, dtype=dtype) for seed in (0, 1))
    k, v = (normal(B, N, s, width, seed=seed, dtype=dtype) for seed in (2, 3))
    return q, k, v, g


def run(q, k, v, g, mask=None, bias=None, **options):
    """Output and gradients in one XLA program."""
    options = {"plan": "fused", "return_attention_weights": False, **options}

    @tf.function(jit_compile=True, autograph=False)
    def attend(given):
        term = given[3] if len(given) > 3 else None
        sources = tf.nest.flatten(given, expand_composites=True)  # also of `ByDistance`
        with tf.GradientTape() as tape:
            tape.watch(sources)
            output, _ = scaled_dot_product_attention(*given[:3], mask, bias=term, **options)
        return output, tape.gradient(output, sources, g)

    return attend([q, k, v] if bias is None else [q, k, v, bias])


def holes(*shape, share=0.4, seed=5):
    return (np.random.default_rng(seed).random(shape) < share).astype(np.float32)


def padding(s):
    """Free keys in any place, none at all, and all of them."""
    mask = holes(B, 1, 1, s)
    mask[1], mask[2] = 1, 0
    return mask


def rows(t, s, heads=1):
    """A mask in which query 2 of every example has no free key."""
    mask = holes(B, heads, t, s)
    mask[:, :, 2] = 1
    return mask


CASES = {
    "no mask": (7, 11, None, {}),
    "causal": (11, 11, None, {"causal": True}),
    "causal, fewer keys": (11, 7, None, {"causal": True}),
    "padding": (7, 11, padding(11), {}),
    "one padding for all": (7, 11, padding(11)[:1], {}),
    "causal, padding": (10, 10, padding(10), {"causal": True}),
    "look-ahead": (10, 10, np.triu(np.ones((10, 10), np.float32), 1), {}),
    "queries": (6, 10, rows(6, 10), {}),
    "heads, causal": (10, 10, rows(10, 10, N), {"causal": True}),
    "window": (11, 11, None, {"causal": True, "window": 3}),
}


def blocked_of(t, s, mask, options):
    """What a case blocks, (B or 1, 1, T, S)."""
    blocked = np.zeros((1, 1)) if mask is None else mask
    distance = np.arange(s) - np.arange(t)[:, None]
    if "causal" in options:
        blocked = np.maximum(blocked, distance > 0)
    if "window" in options:
        blocked = np.maximum(blocked, distance < -options["window"])
    return blocked


def check(output, gradients, given, blocked, bias=0.0):
    """Compare with float64; return the expected gradients."""
    q, k, v, g = (tf.cast(x, tf.float64).numpy() for x in given)
    assert output.dtype == given[0].dtype
    near(output, ref.scaled_dot_product_attention(q, k, v, blocked, bias)[0], output.dtype.name)
    expected = attention_gradients(q, k, v, g, blocked, bias)
    for name, gradient in zip("qkv", gradients, strict=False):
        near(gradient, expected[name], gradient.dtype.name)
    return expected


def check_rate(output, rate, keys):
    """Check mean and variance of rows that average ones of which some are dropped."""
    sums = tf.cast(output[..., 0], tf.float64).numpy()  # rate / (1 - rate) / keys is their variance
    assert abs(sums.mean() - 1) < 0.02
    assert abs(sums.var() * keys * (1 - rate) / rate - 1) < 0.3
