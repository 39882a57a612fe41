"""A bias in 16 bits: the values of `keras.layers.Dense`, and gradients that add up in float32."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.layers import feed_forwards
from tf_transformer.layers.feed_forwards import FlatDense, add_bias

CPUINFO = Path("/proc/cpuinfo")
HALVES = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half the distance of neighbors, relative


def rounded(shape, dtype, seed):
    """Numbers rounded to the dtype, in float64."""
    x = np.random.default_rng(seed).normal(1, 1, shape)
    return tf.cast(tf.cast(x, dtype), tf.float64).numpy()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("jit", [False, True])
def test_gradients(dtype, jit):
    x, bias, upstream = (rounded(s, dtype, i) for i, s in enumerate([(4099, 7), (7,), (4099, 7)]))

    @tf.function(jit_compile=jit)
    def results(x, bias, upstream):
        with tf.GradientTape() as tape:
            tape.watch([x, bias])
            y = add_bias(x, bias)
        return y, *tape.gradient(y, [x, bias], upstream)

    y, to_x, to_bias = results(*(tf.cast(v, dtype) for v in (x, bias, upstream)))
    half = HALVES[dtype]
    np.testing.assert_allclose(tf.cast(y, tf.float64), x + bias, rtol=half, atol=half)
    np.testing.assert_array_equal(tf.cast(to_x, tf.float64), upstream)
    # A processor without instructions for bfloat16 rounds some partial sums in a plain graph; only
    # an accelerator uses `add_bias`.
    exact = jit or dtype == "float16" or (CPUINFO.is_file() and "bf16" in CPUINFO.read_text())
    most = half * (1.01 if exact else 3.0)
    np.testing.assert_allclose(tf.cast(to_bias, tf.float64), upstream.sum(0), rtol=most)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_a_layer_trains_so_on_an_accelerator(activation, monkeypatch):
    x = tf.constant(rounded((5, 3, 11), "bfloat16", 0), tf.bfloat16)
    layer = FlatDense(7, activation, dtype="mixed_bfloat16", bias_initializer="normal")
    layer.build(x.shape)

    def training():
        with tf.GradientTape() as tape:
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
        return y, *tape.gradient(loss, [weight.value for weight in layer.weights])

    called = []
    monkeypatch.setattr(feed_forwards, "add_bias", lambda *x: called.append(1) or add_bias(*x))
    usual = training()
    assert not called
    monkeypatch.setattr(feed_forwards, "has_accelerator", lambda: True)
    found = training()
    assert called and all(gradient is not None for gradient in found)
    layer(x)
    FlatDense(7)(x, training=True)  # float32
    FlatDense(7, use_bias=False, dtype="bfloat16")(x, training=True)
    assert len(called) == 1
    for one, other in zip(found, usual, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(
            *(keras.ops.convert_to_numpy(tf.cast(v, tf.float32)) for v in (one, other)),
            rtol=0.02,
            atol=0.1,
        )


@pytest.mark.parametrize("shape", [(5, 11), (2, 5, 11)])
def test_no_product_in_float16_can_be_fused_with_its_bias(shape, monkeypatch):
    """On a processor with AVX512-FP16, oneDNN computes both together 500 times as slowly."""

    def products_with_bias(dtype):
        layer = FlatDense(7, "relu", dtype=dtype)
        graph = tf.function(layer).get_concrete_function(tf.TensorSpec(shape, dtype)).graph
        adders = (op for op in graph.get_operations() if op.type in ("BiasAdd", "AddV2"))
        return sum(op.inputs[0].op.type == "MatMul" for op in adders)

    monkeypatch.setattr(feed_forwards, "has_accelerator", lambda: False)
    assert products_with_bias("float32") == products_with_bias("bfloat16") == 1
    assert products_with_bias("float16") == 0
