"""Reference vectors, and loading of reference parameters into layers.

`reference_numpy.py` describes the parameter trees. `variables_of(layer)` is the same tree
with the layer's variables as leaves, for loading parameters and for finding the gradient of a
parameter by its reference name.
"""

import functools
from pathlib import Path

import keras
import numpy as np
import parameter_trees as trees

from tf_transformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LayerNorm,
    MultiHeadAttention,
)
from tf_transformer.models import Transformer

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


@functools.cache
def vectors(name):
    """Return `tests/vectors/{name}.npz` as a dict of arrays, named in make_vectors.py."""
    with np.load(VECTORS / f"{name}.npz") as archive:
        return dict(archive)


def case(archive, name):
    """Return the arrays below `name/`, without the parameters."""
    arrays = vectors(archive)
    start = f"{name}/"
    return {
        path.removeprefix(start): array
        for path, array in arrays.items()
        if path.startswith(start) and not path.startswith(f"{start}params/")
    }


def params(archive, name=""):
    """Return the parameter tree of one case."""
    return trees.unflatten(vectors(archive), f"{name}/params" if name else "params")


def _children(layer, **names):
    return {ours: variables_of(getattr(layer, theirs)) for ours, theirs in names.items()}


def _same(*names):
    return {name: name for name in names}


def variables_of(layer):
    """Return the parameter tree of a built layer, with variables in place of arrays."""
    if isinstance(layer, LayerNorm):
        return {"gamma": layer.gamma, "beta": layer.beta}
    if isinstance(layer, keras.layers.Dense):
        return {"kernel": layer.kernel, "bias": layer.bias}
    if isinstance(layer, keras.Sequential):  # the feed-forward network
        dense1, dense2 = layer.layers
        return {"dense1": variables_of(dense1), "dense2": variables_of(dense2)}
    if isinstance(layer, MultiHeadAttention):
        return _children(layer, **_same("wq", "wk", "wv", "dense"))
    if isinstance(layer, EncoderLayer):
        return _children(layer, **_same("mha", "ffn", "layernorm1", "layernorm2"))
    if isinstance(layer, DecoderLayer):
        norms = ("layernorm1", "layernorm2", "layernorm3")
        return _children(layer, **_same("mha1", "mha2", "ffn", *norms))
    if isinstance(layer, (Encoder, Decoder)):
        stack = layer.enc_layers if isinstance(layer, Encoder) else layer.dec_layers
        return {
            "embedding": layer.embedding.embedding.embeddings,
            "layers": [variables_of(one) for one in stack],
        }
    if isinstance(layer, Transformer):
        final_layer = None if layer.final_layer is None else variables_of(layer.final_layer)
        parts = _children(layer, **_same("encoder", "decoder"))
        return {**parts, "final_layer": final_layer}
    raise TypeError(f"layer: no table for {type(layer).__name__}.")


def load(layer, tree):
    """Assign a reference parameter tree to a built layer; names must match exactly.

    Raises:
        ValueError: names or shapes differ; the message lists all of them.
    """
    variables, arrays = trees.flatten(variables_of(layer)), trees.flatten(tree)
    wrong = [f"{name}: only in the layer" for name in variables.keys() - arrays.keys()]
    wrong += [f"{name}: only in the parameters" for name in arrays.keys() - variables.keys()]
    wrong += [
        f"{name}: {tuple(variables[name].shape)} in the layer, {arrays[name].shape} given"
        for name in variables.keys() & arrays.keys()
        if tuple(variables[name].shape) != arrays[name].shape
    ]
    found = {id(variable) for variable in variables.values()}
    wrong += [f"{v.path}: not in the table" for v in layer.weights if id(v) not in found]
    if wrong:
        raise ValueError("parameters and layer differ:\n" + "\n".join(sorted(wrong)))
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return layer


def close(actual, expected, tolerance=1e-5):
    """Assert that two arrays agree within `tolerance` of the largest expected magnitude."""
    expected = np.asarray(expected, np.float64)
    actual = np.asarray(actual).astype(np.float64)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    # The absolute tolerance is relative to the array, for entries near 0 by chance.
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max(initial=1e-30)
    )
