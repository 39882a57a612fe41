"""Gradients of attention in float64 NumPy, derived by hand from the equations.

Axis letters as in `reference_numpy`; `test_reference` checks these against finite differences.
"""

import numpy as np
import reference_numpy as ref


def attention_gradients(q, k, v, cotangent, blocked=0.0, bias=0.0):
    """Return the gradients of sum(output * cotangent) w.r.t. q, k, v and bias.

    With weights W, O = W v and cotangent G: dv = W^T G, dW = G v^T, and through the softmax
    ds = W * (dW - rowsum(dW * W)), zero where the score was masked.
    """
    q, k, v, cotangent, bias = (np.asarray(a, dtype=np.float64) for a in (q, k, v, cotangent, bias))
    _, weights = ref.scaled_dot_product_attention(q, k, v, blocked, bias)
    dweights = cotangent @ np.swapaxes(v, -1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    dscores = np.where(np.asarray(blocked) != 0, 0.0, dscores)  # (..., T, S)
    scale = 1 / np.sqrt(q.shape[-1])
    gradients = {
        "q": dscores @ k * scale,
        "k": np.swapaxes(dscores, -1, -2) @ q * scale,
        "v": np.swapaxes(weights, -1, -2) @ cotangent,
    }
    axes = tuple(axis for axis, size in enumerate(bias.shape) if size != dscores.shape[axis])
    gradients["bias"] = dscores.sum(axes, keepdims=True) if bias.ndim else dscores.sum()
    return gradients
