"""Parameter trees of `reference_numpy`: random values, and conversion to flat names for .npz
files.
"""

import numpy as np

# Random parameters. No bias is zero and no gain is one, so that tests notice a missing one. All
# values are exact in float32, so that a float32 library starts from the same numbers.


def random_array(rng, *shape, scale=1.0, offset=0.0):
    """Draw from N(offset, scale^2), rounded to float32, stored as float64."""
    return (offset + scale * rng.standard_normal(shape)).astype(np.float32).astype(np.float64)


def random_linear_params(rng, width_in, width_out):
    return {
        "kernel": random_array(rng, width_in, width_out, scale=width_in**-0.5),
        "bias": random_array(rng, width_out, scale=0.3),
    }


def random_layer_norm_params(rng, d_model):
    return {
        "gamma": random_array(rng, d_model, scale=0.3, offset=1.0),
        "beta": random_array(rng, d_model, scale=0.3),
    }


def random_mha_params(rng, d_model):
    return {
        name: random_linear_params(rng, d_model, d_model) for name in ("wq", "wk", "wv", "dense")
    }


def random_ffn_params(rng, d_model, dff):
    return {
        "dense1": random_linear_params(rng, d_model, dff),
        "dense2": random_linear_params(rng, dff, d_model),
    }


def random_encoder_layer_params(rng, d_model, dff):
    return {
        "mha": random_mha_params(rng, d_model),
        "ffn": random_ffn_params(rng, d_model, dff),
        "layernorm1": random_layer_norm_params(rng, d_model),
        "layernorm2": random_layer_norm_params(rng, d_model),
    }


def random_decoder_layer_params(rng, d_model, dff):
    return {
        "mha1": random_mha_params(rng, d_model),
        "mha2": random_mha_params(rng, d_model),
        "ffn": random_ffn_params(rng, d_model, dff),
        "layernorm1": random_layer_norm_params(rng, d_model),
        "layernorm2": random_layer_norm_params(rng, d_model),
        "layernorm3": random_layer_norm_params(rng, d_model),
    }


def random_transformer_params(
    rng, *, num_layers, d_model, dff, input_vocab_size, target_vocab_size, tied=False
):
    """Draw the parameters of a whole model from a `np.random.Generator`."""
    embedding_scale = d_model**-0.5
    return {
        "encoder": {
            "embedding": random_array(rng, input_vocab_size, d_model, scale=embedding_scale),
            "layers": [random_encoder_layer_params(rng, d_model, dff) for _ in range(num_layers)],
        },
        "decoder": {
            "embedding": random_array(rng, target_vocab_size, d_model, scale=embedding_scale),
            "layers": [random_decoder_layer_params(rng, d_model, dff) for _ in range(num_layers)],
        },
        "final_layer": None if tied else random_linear_params(rng, d_model, target_vocab_size),
    }


# Parameter trees as flat names, for .npz files


def flatten(tree, prefix=""):
    """{"layers": [{"wq": a}]} -> {"layers/0/wq": a}; entries that are None are left out."""
    if tree is None:
        return {}
    if not isinstance(tree, (dict, list)):
        return {prefix: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    flat = {}
    for name, branch in items:
        flat.update(flatten(branch, f"{prefix}/{name}" if prefix else str(name)))
    return flat


def unflatten(flat, prefix=""):
    """Undo `flatten` for the names below `prefix`; names of digits become list indices.

    `flat` is a dict or an open .npz archive.
    """
    start = f"{prefix}/" if prefix else ""
    tree = {}
    for path in flat:
        if not path.startswith(start):
            continue
        *branches, leaf = path[len(start) :].split("/")
        node = tree
        for name in branches:
            node = node.setdefault(name, {})
        node[leaf] = flat[path]
    return _lists_from_digits(tree)


def _lists_from_digits(node):
    if not isinstance(node, dict):
        return node
    node = {name: _lists_from_digits(branch) for name, branch in node.items()}
    if node and all(name.isdigit() for name in node):
        return [node[name] for name in sorted(node, key=int)]
    return node
