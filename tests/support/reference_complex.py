"""The complex encoder in complex128 NumPy, from the equations of "Encoding Word Order in Complex
Embeddings" (Wang et al. 2020); see reference_numpy.py for the axis letters and for masks.

Parameters are nested dicts of arrays, complex ones for linear layers:

    linear         {"kernel": (in, out), "bias": (out,)}
    layer norm     {"gamma": (2, D), "beta": (2, D)}, real part first
    embedding      {"amplitude", "frequency", "phase"}: (V or 1, D or 1), or 0.0
    attention      {"wq", "wk", "wv", "dense"}: linear
    feed-forward   {"hidden", "dense"}: linear
    encoder layer  {"mha", "ffn", "layernorm1", "layernorm2"}
    encoder        {"embedding", "layers": [encoder layer, ...]}
"""

import numpy as np
import reference_numpy as ref


def embedding(params, ids, width, start=1):
    """r exp(i (w pos + theta)), one number at a time: equation 5."""
    ids = np.asarray(ids)

    def of(name, word, d):
        table = np.asarray(params[name], np.float64)
        if table.ndim == 0:
            return float(table)
        return table[word if len(table) > 1 else 0, d if table.shape[1] > 1 else 0]

    out = np.empty((*ids.shape, width), np.complex128)
    for b, t, d in np.ndindex(*out.shape):
        r, w, theta = (of(name, ids[b, t], d) for name in ("amplitude", "frequency", "phase"))
        out[b, t, d] = r * np.exp(1j * (w * (start + t) + theta))
    return out


def attention(q, k, v, blocked=None):
    """softmax(|q k^H| / sqrt(H)) v: equations 13 and 14. Returns output and weights."""
    q, k, v = (np.asarray(a, np.complex128) for a in (q, k, v))
    products = np.einsum("...th,...sh->...ts", q, np.conj(k))
    scores = np.abs(products) / np.sqrt(q.shape[-1])
    if blocked is not None:
        scores = np.where(np.asarray(blocked) != 0, ref.BLOCKED_SCORE, scores)
    weights = ref.softmax(scores)
    return np.einsum("...ts,...sh->...th", weights, v), weights


def linear(params, x, activation=None):
    """s(Re(x W + b)) + i s(Im(x W + b)): equation 10."""
    out = np.asarray(x, np.complex128) @ params["kernel"] + params["bias"]
    return out if activation is None else activation(out.real) + 1j * activation(out.imag)


def multi_head_attention(params, q, k, v, blocked, num_heads):
    """Output (B, T, D), weights (B, N, T, S)."""
    inputs = zip(("wq", "wk", "wv"), (q, k, v), strict=True)
    q, k, v = (ref.split_heads(linear(params[name], x), num_heads) for name, x in inputs)
    heads, weights = attention(q, k, v, blocked)
    return linear(params["dense"], ref.merge_heads(heads)), weights


def layer_norm(params, x, eps=1e-6):
    """Each part for itself."""
    gamma, beta = params["gamma"], params["beta"]
    real = ref.layer_norm(x.real, gamma[0], beta[0], eps)
    return real + 1j * ref.layer_norm(x.imag, gamma[1], beta[1], eps)


def feed_forward(params, x, activation=ref.relu):
    return linear(params["dense"], linear(params["hidden"], x, activation))


def encoder_layer(params, x, blocked, num_heads):
    attended, _ = multi_head_attention(params["mha"], x, x, x, blocked, num_heads)
    x = layer_norm(params["layernorm1"], x + attended)
    return layer_norm(params["layernorm2"], x + feed_forward(params["ffn"], x))


def encoder(params, ids, blocked, num_heads, width):
    x = embedding(params["embedding"], ids, width)
    for layer in params["layers"]:
        x = encoder_layer(layer, x, blocked, num_heads)
    return x


def to_real(params, x):
    """[Re x, Im x] W + b, real."""
    return np.concatenate([x.real, x.imag], -1) @ params["kernel"] + params["bias"]
