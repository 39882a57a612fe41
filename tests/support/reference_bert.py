"""BERT in float64 NumPy, written from the equations, with the published code's variable names.

Shares no code with the library. Parameters are a dict of arrays by their names in a TensorFlow
checkpoint; all arrays are (B, T, ...).
"""

import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x):
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, params, scope, epsilon=1e-12):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    gamma, beta = params[f"{scope}/gamma"], params[f"{scope}/beta"]
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def dense(x, params, scope):
    return x @ params[f"{scope}/kernel"] + params[f"{scope}/bias"]


def attention(from_tensor, to_tensor, params, scope, heads, adder=0.0, acts=(None, None, None)):
    """Compute softmax(Q K^T / sqrt(H) + adder) V, head by head; return (context, weights)."""
    projected = []
    for name, x, act in zip(
        ("query", "key", "value"), (from_tensor, to_tensor, to_tensor), acts, strict=True
    ):
        y = dense(x, params, f"{scope}/{name}")
        projected.append(y if act is None else act(y))
    q, k, v = projected
    width = q.shape[-1] // heads
    contexts, weights = [], []
    for n in range(heads):
        part = slice(n * width, (n + 1) * width)
        scores = q[..., part] @ k[..., part].swapaxes(-1, -2) / math.sqrt(width) + adder
        weights.append(softmax(scores))
        contexts.append(weights[-1] @ v[..., part])
    return np.concatenate(contexts, -1), np.stack(weights, 1)


def encoder(x, params, heads, layers, adder=0.0, act=gelu, scope="encoder", group=lambda n: n):
    """Return the outputs and attention weights of all layers."""
    outputs, all_weights = [], []
    for n in range(layers):
        layer = f"{scope}/layer_{group(n)}"
        context, weights = attention(x, x, params, f"{layer}/attention/self", heads, adder)
        attended = dense(context, params, f"{layer}/attention/output/dense")
        x = layer_norm(x + attended, params, f"{layer}/attention/output/LayerNorm")
        inner = act(dense(x, params, f"{layer}/intermediate/dense"))
        x = layer_norm(
            x + dense(inner, params, f"{layer}/output/dense"), params, f"{layer}/output/LayerNorm"
        )
        outputs.append(x)
        all_weights.append(weights)
    return outputs, all_weights


def bert(ids, types, mask, params, heads, layers, act=gelu, pooler=np.tanh, group=lambda n: n):
    """Return a dict: hidden_states (embeddings first), attentions, pooled_output.

    `mask` is (B, T), 1 = may attend.
    """
    x = params["bert/embeddings/word_embeddings"][ids]
    x = x + params["bert/embeddings/position_embeddings"][: ids.shape[1]]
    x = x + params["bert/embeddings/token_type_embeddings"][types]
    x = layer_norm(x, params, "bert/embeddings/LayerNorm")
    if "bert/encoder/embedding_hidden_mapping_in/kernel" in params:
        x = dense(x, params, "bert/encoder/embedding_hidden_mapping_in")
    adder = (1.0 - mask[:, None, :]) * -10000.0
    outputs, weights = encoder(x, params, heads, layers, adder, act, "bert/encoder", group)
    results = {"hidden_states": [x, *outputs], "attentions": weights}
    if "bert/pooler/dense/kernel" in params:
        results["pooled_output"] = pooler(dense(outputs[-1][:, 0], params, "bert/pooler/dense"))
    return results


def masked_lm(states, params, act=gelu):
    """Return the logits of all words at all positions."""
    x = act(dense(states, params, "cls/predictions/transform/dense"))
    x = layer_norm(x, params, "cls/predictions/transform/LayerNorm")
    table = params["bert/embeddings/word_embeddings"]
    return x @ table.T + params["cls/predictions/output_bias"]
