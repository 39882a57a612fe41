"""The committed vectors equal a fresh run of their script and cover the important cases."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import parameter_trees as trees
import pytest
import reference_numpy as ref
import tensorflow as tf
from exact import close

pytestmark = pytest.mark.one_of(10, "layers")

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
N, S, VECTORS_H = 7, 5, 2


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_flatten_round_trip(rng):
    params = trees.random_transformer_params(
        rng, num_layers=11, d_model=2, dff=3, input_vocab_size=5, target_vocab_size=7
    )
    flat = trees.flatten(params)
    assert "encoder/layers/10/mha/wq/kernel" in flat
    back = trees.unflatten(trees.flatten(params, "p"), "p")
    assert len(back["decoder"]["layers"]) == 11
    for name, array in trees.flatten(back).items():
        np.testing.assert_array_equal(array, flat.pop(name))
    assert not flat
    assert trees.flatten({"final_layer": None}) == {}


@pytest.fixture(scope="module")
def fresh_vectors():
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("make_vectors", VECTORS / "make_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return {name: make() for name, make in module.ARCHIVES.items()}


@pytest.mark.parametrize("name", ["attention", "layers", "transformer"])
def test_vectors_equal_a_fresh_run(fresh_vectors, name):
    fresh = fresh_vectors[name]
    with np.load(VECTORS / f"{name}.npz") as committed:
        assert set(committed.files) == set(fresh)
        for key in committed.files:
            actual, expected = committed[key], fresh[key]
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), key
            assert np.isfinite(actual).all(), key
            if actual.dtype != np.float64:  # inputs, parameters, ids, masks
                np.testing.assert_array_equal(actual, expected, err_msg=key)
            else:  # BLAS may sum in another order; finite differences amplify that by 1 / eps
                close(actual, expected, 1e-7 if "grad" in key else 1e-11)


def test_vectors_hold_masks_that_matter():
    """Each mask has zeros and ones, and inverting it changes the result."""
    with np.load(VECTORS / "attention.npz") as z:
        for case in ("padding", "look_ahead", "blocked_row", "wide"):
            mask = z[f"{case}/mask"]
            assert set(np.unique(mask)) == {0.0, 1.0}
            q, k, v = (z[f"{case}/{n}"] if f"{case}/{n}" in z else z[n] for n in "qkv")
            right, _ = ref.scaled_dot_product_attention(q, k, v, mask)
            wrong, _ = ref.scaled_dot_product_attention(q, k, v, 1 - mask)
            close(right, z[f"{case}/output"], 1e-11)
            assert np.abs(right - wrong).max() > 0.1
        uniform = z["blocked_row/weights"][1, :, 1]
        np.testing.assert_array_equal(uniform, np.full((N, S), 1 / S))


def test_attention_vectors_and_gradients_match_tensorflow():
    with np.load(VECTORS / "attention.npz") as z:
        q, k, v = (tf.constant(z[name], dtype=tf.float64) for name in "qkv")
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            scores = tf.einsum("bnth,bnsh->bnts", q, k) / math.sqrt(VECTORS_H)
            weights = tf.nn.softmax(tf.where(z["padding/mask"] == 1, -np.inf, scores))
            output = tf.einsum("bnts,bnsh->bnth", weights, v)
            loss = tf.reduce_sum(output * z["padding/cotangent"].astype(np.float64))
        close(z["padding/weights"], weights.numpy())
        close(z["padding/output"], output.numpy())
        for name, grad in zip("qkv", tape.gradient(loss, [q, k, v]), strict=True):
            close(z[f"padding/grad_{name}"], grad.numpy(), 1e-8)


def test_vectors_stay_small():
    assert sum(path.stat().st_size for path in VECTORS.glob("*.npz")) < 300_000
