"""Attention by one call of cuDNN ("flash attention"), inside XLA programs on NVIDIA GPUs.

XLA's GPU compiler turns custom calls of certain names into cuDNN's fused kernels, which never store
the T x S scores: Dao et al. 2022, "FlashAttention". The names, operands and limits are those that
JAX states for the same calls.

Axes: B batch, N heads, T target (query) length, S source (key) length, H head width.
"""

import contextlib
import contextvars
import functools
import json
import math

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.eager import context
from tensorflow.python.framework import config
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph

from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.attention.whole import blocked_or_future
from tf_transformer.functional.tracing import in_xla_program

# Most elements of a bias, which cuDNN reads from memory: 512 MiB.
MOST_OF_BIAS = 2**28
# A blocked score in bfloat16, which has the range of float32. -inf would turn rows into NaN.
_BLOCKED = -(2.0**41)


@functools.cache
def capability():
    """The lowest compute capability of the GPUs that can use cuDNN, or None."""
    if not tf.sysconfig.get_build_info().get("is_cuda_build"):
        return None
    details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
    return min((gpu.get("compute_capability") or (0, 0) for gpu in details), default=None)


_PORTABLE = contextvars.ContextVar("portable_program", default=False)


@contextlib.contextmanager
def without_cudnn():
    """Within this context, programs are traced for any device."""
    token = _PORTABLE.set(True)
    try:
        yield
    finally:
        _PORTABLE.reset(token)


def why_not_fused(q, k, v, blocked, bias, *, causal, window, dropout, compiled):
    """What keeps cuDNN from computing a call of attention, in a few words, or None."""
    gpu = None if _PORTABLE.get() else capability()
    if gpu is None:
        return "no NVIDIA GPU that TensorFlow can use"
    if gpu < (8, 0):
        return f"a GPU of compute capability {gpu[0]}.{gpu[1]}; it needs 8.0"
    if not compiled:
        return "a plain graph; it needs XLA (jit_compile=True)"
    if "CPU" in f"{tf.zeros(()).device} {context.context().device_name}":
        return "a program for the CPU, by tf.device"
    if config.is_op_determinism_enabled():
        return "deterministic operations, which its gradients are not"
    if q.dtype not in (tf.float16, tf.bfloat16):
        return f"{q.dtype.name}; it needs bfloat16 or float16"
    if q.shape.rank != 4 or not all(x.shape.is_fully_defined() for x in (q, k, v)):
        return f"the shape {q.shape}; it needs (batch, heads, length, width), all known"
    width, most = q.shape[-1], 256 if gpu >= (9, 0) else 128
    if width != v.shape[-1] or width % 8 or width > most:
        widths = f"heads of width {width}, values of width {v.shape[-1]}"
        return f"{widths}; it needs the same multiple of 8, at most {most}"
    if q.shape[:2] != k.shape[:2]:
        return f"q {q.shape} and k {k.shape}; it needs the same batch and heads"
    if dropout is not None and not _draws_once():
        return "dropout in a loop or outside of XLA, where each pass would drop other weights"
    if window is not None and not (causal and q.shape == k.shape):
        return "a window; it needs causal self-attention"
    if window is not None and not (blocked is None and bias is None and dropout is None):
        return "a window with a mask, a bias or dropout"
    return _why_no_bias(q, k, blocked, bias, causal)


def _why_no_bias(q, k, blocked, bias, causal):
    """What keeps a mask or bias from being lengths of keys, or cuDNN's bias."""
    if isinstance(bias, ByDistance) and bias.tables:
        return "relative positions with tables of keys or values"
    if bias is None and (blocked is None or _is_of_keys(blocked, causal)):
        return None
    if bias is not None and blocked is not None:
        return "a mask and a bias; it takes one of them"
    dtype = q.dtype if bias is None else getattr(bias, "scores", bias).dtype
    if dtype != q.dtype:
        return f"a bias in {dtype.name}, which would be rounded to {q.dtype.name}"
    length, source = q.shape[-2], k.shape[-2]
    if length % 2 or source % 2:
        return f"a mask or bias of lengths {length} and {source}; it needs even ones"
    if blocked is not None and q.dtype == tf.float16:
        return "a mask in float16, which cannot hold a blocked score"
    x, axes = (bias.scores, 1) if isinstance(bias, ByDistance) else (bias, 2)
    x = blocked if x is None else x
    shape = (*(1,) * (2 + axes - x.shape.rank), *x.shape[:-axes], length, source)
    if bias is not None and shape[0] != 1:
        return f"a bias {shape}; it needs (1, {q.shape[1]}, {length}, {source})"
    if None in shape or math.prod(shape) > MOST_OF_BIAS:
        return f"a mask or bias {shape} of more than {MOST_OF_BIAS} elements"
    return None


def _is_of_keys(blocked, causal):
    """Whether a mask has one row of keys for each example, which may then change places."""
    return not causal and blocked.shape.rank == 4 and blocked.shape[1:3] == (1, 1)


def _draws_once():
    """Whether both passes run once in each run of one program: cuDNN counts the runs of a call."""
    graph = tf.compat.v1.get_default_graph()
    is_compiled = in_xla_program()
    while graph is not None and not isinstance(graph, WhileBodyFuncGraph):
        graph = getattr(graph, "outer_graph", None)
    return is_compiled and graph is None


def fused_attention(q, k, v, blocked, bias, *, causal, window, dropout):
    """Attention output (B, N, T, H) by cuDNN, for calls that `why_not_fused` allows.

    For a mask of keys alone, the free keys are gathered to the front, and cuDNN gets their number.
    Other masks, and padding with `causal`, are a bias. cuDNN draws its own numbers for dropout, new
    ones in each run: the seed counts if it is a constant, or else the place in the program.
    """
    rate, seed = (0.0, 0) if dropout is None else (dropout[0], _static_seed(dropout[1]))
    options = {"causal": causal, "window": window, "rate": rate, "seed": seed}
    if blocked is not None and bias is None and _is_of_keys(blocked, causal):
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
