"""Every layer against the reference vectors, with and without XLA in the core."""

import math

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import case, close, load, params
from vector_checks import LAYER_CHECKS, D, F

from tf_transformer import (
    Architecture,
    FeedForward,
    attention_plan,
    point_wise_feed_forward_network,
)
from tf_transformer.layers import BatchNorm, EncoderLayer, LayerNorm, NaiveBatchNorm, RMSNorm


@pytest.mark.one_of(10)
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", LAYER_CHECKS)
def test_layers_match_the_vectors(name, jit):
    with attention_plan(jit=jit):
        LAYER_CHECKS[name]()


def test_the_feed_forward_network_matches_the_vectors():
    data = case("layers", "ffn")
    ffn = point_wise_feed_forward_network(D, F)
    ffn.build(data["x"].shape)
    close(load(ffn, params("layers", "ffn"))(data["x"]), data["output"])


def gelu(x):
    """x Phi(x), where Phi is the normal CDF: Hendrycks and Gimpel 2016, section 2."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def test_an_encoder_layer_like_berts_matches_the_reference():
    data, tree = case("layers", "encoder_layer"), params("layers", "encoder_layer")
    layer = EncoderLayer(
        D, 7, F, architecture=Architecture(norm=LayerNorm(0.1), feed_forward=FeedForward("gelu"))
    )
    layer = EncoderLayer.from_config(layer.get_config())
    layer.build(data["x"].shape)
    load(layer, tree)
    expected = ref.encoder_layer(tree, data["x"], data["mask"], 7, gelu, 0.1)
    close(layer(data["x"], False, data["mask"]), expected)


def test_layer_normalization_matches_the_vectors():
    data = case("layers", "layer_norm")
    layer = EncoderLayer(D, 7, F).layernorm1
    layer.build(data["x"].shape)
    close(load(layer, params("layers", "layer_norm"))(data["x"]), data["output"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_layer_normalization_of_half_precision_has_float32_statistics(dtype):
    # The dtype represents the inputs exactly; their mean is far from 0. Only the result is rounded.
    rng = np.random.default_rng(0)
    x = tf.cast(5 + rng.integers(-8, 9, (3, D)) / 8, dtype)
    layer = LayerNorm(dtype=f"mixed_{dtype}")
    expected = ref.layer_norm(x.numpy(), np.ones(D), np.zeros(D))
    np.testing.assert_array_equal(layer(x), tf.cast(tf.constant(expected, tf.float32), dtype))


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm, BatchNorm, NaiveBatchNorm])
def test_norms_of_numbers_whose_squares_float16_cannot_hold(norm):
    rng = np.random.default_rng(0)
    x = tf.cast(rng.choice([-1, 1], (5, 7, D)) * rng.uniform(3e4, 6.5e4, (5, 7, D)), tf.float16)
    upstreams, results = 512 * rng.standard_normal((5, 7, D)), []
    for x_in, dtype in ((x, "mixed_float16"), (tf.cast(x, tf.float32), "float32")):
        layer, upstream = norm(dtype=dtype), tf.constant(upstreams, x_in.dtype)
        with tf.GradientTape() as tape:
            tape.watch(x_in)
            y = layer(x_in, training=True)
        results.append([y, tape.gradient(y, x_in, output_gradients=upstream)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)


def test_the_loader_lists_everything_that_does_not_fit():
    layer = EncoderLayer(D, 7, F)
    layer.build((2, 3, D))
    tree = params("layers", "encoder_layer")
    tree["layernorm3"] = tree.pop("layernorm2")
    tree["mha"]["wq"]["kernel"] = tree["mha"]["wq"]["kernel"][:, :3]
    with pytest.raises(ValueError, match="parameters and layer differ") as error:
        load(layer, tree)
    assert "layernorm2/gamma: only in the layer" in str(error.value)
    assert "layernorm3/beta: only in the parameters" in str(error.value)
    assert "mha/wq/kernel: (14, 14) in the layer, (14, 3) given" in str(error.value)
