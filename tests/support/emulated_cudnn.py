"""What cuDNN computes for the custom calls of fused attention, in float32, from their JSON.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import json

import tensorflow as tf

SCORES, OTHERS = "__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaSoftmax"
FORWARD = {"bmm1": (3, 3), "bmm2": (3, 2)}
BACKWARD = {"bmm1_grad_gemm1": (2, 2), "bmm1_grad_gemm2": (3, 2)}
BACKWARD |= {"bmm2_grad_gemm1": (2, 2), "bmm2_grad_gemm2": (3, 3)}


def call_cudnn(name, inputs, outputs, settings):
    """Stand in for `functional.attention.fused.call_cudnn`."""
    settings = json.loads(settings)["cudnn_fmha_backend_config"]
    backward, dropped = name.endswith("Backward"), "Dropout" in name
    biased = name.startswith(SCORES)
    assert name == (SCORES if biased else OTHERS) + "Dropout" * dropped + "Backward" * backward
    assert dropped == (settings["dropout_rate"] > 0) and settings["is_flash_attention"]
    for product, axes in (BACKWARD if backward else FORWARD).items():
        numbers = settings[f"{product}_dot_dimension_numbers"]
        found = (*numbers["lhs_contracting_dimensions"], *numbers["rhs_contracting_dimensions"])
        assert tuple(map(int, found)) == axes

    q, k, v, *rest = inputs
    assert q.dtype in (tf.bfloat16, tf.float16) and q.dtype == k.dtype == v.dtype
    sums, upstream = (rest.pop(0), rest.pop(0)) if backward else (None, None)
    bias = rest.pop(0) if biased else None
    output = rest.pop(0) if backward else None
    lengths = rest[1] if "PADDING" in settings["mask_type"] else None
    assert len(rest) == 2 * (lengths is not None)
    shape = (*q.shape[:3], k.shape[2])
    tensor = settings["intermediate_tensor_shape"]
    assert tuple(map(int, tensor["dimensions"])) == shape
    assert tensor["element_type"] == {"bfloat16": "BF16", "float16": "F16"}[q.dtype.name]

    q, k, v = (tf.cast(x, tf.float32) for x in (q, k, v))
    scale = settings["fmha_scale"]
    scores = scale * tf.matmul(q, k, transpose_b=True)
    if bias is not None:
        assert bias.dtype == inputs[0].dtype and bias.shape[2:] == shape[2:]
        assert all(n in (1, m) for n, m in zip(bias.shape, shape, strict=True))
        assert shape[2] % 2 == shape[3] % 2 == 0
        scores += tf.cast(bias, tf.float32)
    hidden = hidden_keys(settings, lengths, shape)
    scores = tf.where(hidden, -float("inf"), scores)
    factors = 1.0
    if dropped:
        rate, seed = settings["dropout_rate"], [settings["seed"], 0]
        draws = tf.random.stateless_uniform(shape, seed)
        factors = tf.cast(draws >= rate, tf.float32) / (1 - rate)
    if not backward:
        sums = tf.reduce_logsumexp(scores, -1)
        output = tf.matmul(tf.exp(scores - sums[..., tf.newaxis]) * factors, v)
        return as_specified([output, sums], outputs)
    weights = tf.exp(scores - sums[..., tf.newaxis])
    up = tf.cast(upstream, tf.float32)
    mean = tf.reduce_sum(up * tf.cast(output, tf.float32), -1, keepdims=True)
    slope = weights * (tf.matmul(up, v, transpose_b=True) * factors - mean)
    dq, dk = tf.matmul(slope, k) * scale, tf.matmul(slope, q, transpose_a=True) * scale
    dv = tf.matmul(weights * factors, up, transpose_a=True)
    if lengths is not None:  # nothing is said about the gradients of hidden keys
        beyond = tf.range(shape[3]) >= lengths[:, tf.newaxis]
        dk, dv = (tf.where(beyond[:, tf.newaxis, :, tf.newaxis], 7.0, x) for x in (dk, dv))
    results = [dq, dk, dv]
    if bias is not None and len(outputs) == 5:
        axes = [axis for axis in (0, 1) if bias.shape[axis] == 1]
        results.append(tf.reduce_sum(slope, axes, keepdims=True))
    return as_specified(results, outputs)


def hidden_keys(settings, lengths, shape):
    queries, keys = tf.range(shape[2])[:, tf.newaxis], tf.range(shape[3])
    hidden = tf.zeros((1, 1, shape[2], shape[3]), tf.bool)
    if "CAUSAL" in settings["mask_type"]:
        hidden |= keys > queries
    if window := settings["sliding_window_length"]:
        assert settings["mask_type"] == "CAUSAL"
        hidden |= keys <= queries - window
    if lengths is not None:
        assert lengths.dtype == tf.int32
        hidden |= keys >= lengths[:, tf.newaxis, tf.newaxis, tf.newaxis]
    return hidden


def as_specified(results, outputs):
    """The results in the dtypes of the specs, and an empty workspace."""
    *outputs, workspace = outputs
    assert workspace == tf.TensorSpec((0,), tf.uint8)
    for result, spec in zip(results, outputs, strict=True):
        assert result.shape == spec.shape
    results = [tf.cast(x, spec.dtype) for x, spec in zip(results, outputs, strict=True)]
    return [*results, tf.zeros((0,), tf.uint8)]
