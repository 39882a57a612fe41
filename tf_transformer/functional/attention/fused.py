"""Attention by one call of cuDNN ("flash attention"), inside XLA programs on NVIDIA GPUs.

XLA's GPU compiler turns custom calls of certain names into cuDNN's fused kernels, which never store
the T x S scores: Dao et al. 2022, "FlashAttention". The names, operands and limits are those that
JAX states for the same calls.

Axes: B batch, N heads, T target (query) length, S source (key) length, H head width.
"""

import functools
import json
import math

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.plan import is_of_keys
from tf_transformer.functional.attention.whole import blocked_or_future

# A blocked score in bfloat16, which has the range of float32. -inf would turn rows into NaN.
_BLOCKED = -(2.0**41)


def fused_attention(q, k, v, blocked, bias, *, causal, window, dropout):
    """Attention output (B, N, T, H) by cuDNN, for calls that `why_not_fused` allows."""
    # For a mask of keys alone, the free keys are gathered to the front, and cuDNN gets their
    # number. Other masks, and padding with `causal`, are a bias. cuDNN draws its own numbers for
    # dropout, new ones in each run.
    rate, seed = (0.0, 0) if dropout is None else (dropout[0], _static_seed(dropout[1]))
    options = {"causal": causal, "window": window, "rate": rate, "seed": seed}
    if blocked is not None and bias is None and is_of_keys(blocked, causal):
        return _attend_to_free(q, k, v, blocked, options)
    term, lonely = None, None
    if isinstance(bias, ByDistance):
        bias = bias.tensor(q, k.shape[-2])  # (N, T, S)
    if bias is not None:
        term = tf.broadcast_to(bias, (1, q.shape[1], q.shape[2], k.shape[2]))
    elif blocked is not None:
        term = tf.where(blocked, tf.cast(_BLOCKED, q.dtype), tf.zeros((), q.dtype))
        term = term[(tf.newaxis,) * (4 - term.shape.rank)]
        term = tf.broadcast_to(term, (*term.shape[:2], q.shape[2], k.shape[2]))
        lonely = tf.reduce_all(blocked_or_future(blocked, causal, q, k), -1, keepdims=True)
    output = _attend(q, k, v, term, bias is not None, None, **options)
    if lonely is None:
        return output
    # Not cuDNN's average, whose gradient depends on q, and which is over the past alone if causal.
    average = tf.reduce_mean(tf.cast(v, tf.float32), -2, keepdims=True)
    return tf.where(lonely, tf.cast(average, q.dtype), output)


def _static_seed(seed):
    known = tf.get_static_value(tf.convert_to_tensor(seed))
    if known is None:  # differs between the calls of a program, and is the same if traced again
        return len(tf.compat.v1.get_default_graph().get_operations())
    return (int(known[0]) * 0x9E3779B1 ^ int(known[1])) % 2**31


def _attend_to_free(q, k, v, blocked, options):
    blocked = tf.broadcast_to(blocked[:, 0, 0], (q.shape[0], k.shape[2]))  # (B, S)
    count = tf.math.count_nonzero(~blocked, -1, dtype=tf.int32)
    # Without a free key: the average of all values, by a query that scores all of them 0.
    lonely = tf.equal(count, 0)[:, tf.newaxis]
    hidden = blocked & ~lonely
    order = tf.argsort(tf.cast(hidden, tf.int32), stable=True)  # free keys first
    back = tf.argsort(order)

    @tf.custom_gradient
    def in_order(x):  # (B, N, S, H)
        # A gather is faster than the scatter that would be its gradient.
        gather = functools.partial(tf.gather, axis=2, batch_dims=1)
        return gather(x, order), lambda upstream: gather(upstream, back)

    def zero(x, where):
        return tf.where(where[:, tf.newaxis, :, tf.newaxis], tf.zeros((), x.dtype), x)

    k, v = (in_order(zero(x, hidden)) for x in (k, v))
    lengths = tf.where(lonely[:, 0], k.shape[2], count)
    return _attend(zero(q, lonely), k, v, None, False, lengths, **options)


def _attend(q, k, v, term, with_gradient, lengths, *, causal, window, rate, seed):
    """Call cuDNN forward, and for the gradients backward; `term` is a bias, `lengths` of keys."""
    mask = "PADDING" if lengths is not None else "CAUSAL" if causal else "NO_MASK"
    name = "__cudnn$fmha" + ("Softmax" if term is None else "ScaleBiasSoftmax")
    name += "Dropout" if rate else ""
    configured = functools.partial(_settings, q, k.shape[2], mask, window, rate, seed)
    spec, workspace = tf.TensorSpec, tf.TensorSpec((0,), tf.uint8)
    more = [] if lengths is None else [tf.fill(lengths.shape, q.shape[2]), lengths]

    @tf.custom_gradient
    def attend(q, k, v, *terms):
        outputs = [spec(q.shape, q.dtype), spec(q.shape[:-1], tf.float32), workspace]
        output, sums, _ = call_cudnn(name, [q, k, v, *terms, *more], outputs, configured(_FORWARD))

        def gradient(upstream):
            inputs = [q, k, v, sums, upstream, *terms, output, *more]
            wanted = [q, k, v, *terms] if with_gradient else [q, k, v]
            results = [spec(x.shape, x.dtype) for x in wanted]
            *results, _ = call_cudnn(
                f"{name}Backward", inputs, [*results, workspace], configured(_BACKWARD)
            )
            return results if with_gradient else [*results, *(None for _ in terms)]

        return output, gradient

    return attend(q, k, v, *([] if term is None else [term]))


def call_cudnn(name, inputs, outputs, settings):
    """Emit a custom call, which only XLA for a GPU can run."""
    return xla.custom_call_v2(name, inputs, outputs, backend_config=settings)


# The contracted axes of the products, left and right, each with the batch axes 0 and 1.
_FORWARD = {"bmm1": (3, 3), "bmm2": (3, 2)}
_BACKWARD = {
    "bmm1_grad_gemm1": (2, 2),
    "bmm1_grad_gemm2": (3, 2),
    "bmm2_grad_gemm1": (2, 2),
    "bmm2_grad_gemm2": (3, 3),
}


def _settings(q, source, mask, window, rate, seed, products):
    """The JSON that XLA reads, a `GpuBackendConfig` with `CudnnfMHABackendConfig`."""
    layout = {
        "minor_to_major": ["3", "2", "1", "0"],
        "element_size_in_bits": "0",
        "memory_space": "0",
        "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "dynamic_shape_metadata_prefix_bytes": "0",
    }
    scores = {
        "element_type": {"bfloat16": "BF16", "float16": "F16"}[q.dtype.name],
        "dimensions": [str(size) for size in (*q.shape[:3], source)],
        "layout": layout,
        "is_dynamic_dimension": [False] * 4,
    }
    settings = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": 1 / math.sqrt(q.shape[-1]),
        "intermediate_tensor_shape": scores,
        "is_flash_attention": True,
        "mask_type": mask,
        "dropout_rate": rate,
        "seed": seed,
        "sliding_window_length": 0 if window is None else window + 1,  # a query's own key counts
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    for name, (left, right) in products.items():
        settings[f"{name}_dot_dimension_numbers"] = {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": ["0", "1"],
            "rhs_batch_dimensions": ["0", "1"],
        }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": settings})
