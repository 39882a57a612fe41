"""How attention is computed: whole, in blocks or by cuDNN, and whether XLA compiles it.

Axes: T target (query) length, S source (key) length; leading axes (batch, heads) are "...".
"""

import contextlib
import contextvars
import dataclasses
import functools
import logging
import math

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import config
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.tensors import has_accelerator, in_xla_program, setting

# Programs that "auto" compiles in one process: each new shape takes XLA 0.2 to 1 second.
MOST_PROGRAMS = 64
_shapes = set()
_preferred = contextvars.ContextVar("attention_plan", default="auto")
_preferred_jit = contextvars.ContextVar("attention_jit", default="auto")


def use_xla(jit, *shapes):
    """Whether XLA compiles the attention core, or it is in a program that XLA compiles."""
    _check_jit(jit)
    jit = _preferred_jit.get() if jit == "auto" else jit
    if jit != "auto":
        return jit
    # On a CPU a plain graph is faster (benchmarks/attention/NOTES.md).
    return in_xla_program() or (has_accelerator() and _is_admitted(shapes))


def _check_jit(jit):
    check(jit in (True, False, "auto"), "jit", 'True, False or "auto"', f"{jit!r}")


def _is_admitted(shapes):
    """Whether all sizes are known, and few enough other shapes were compiled before."""
    if not all(shape.is_fully_defined() for shape in shapes):
        return False
    key = tuple(map(tuple, shapes))
    if key not in _shapes and len(_shapes) < MOST_PROGRAMS:
        _shapes.add(key)
        if len(_shapes) == MOST_PROGRAMS:
            logging.getLogger("tf_transformer").warning(
                "attention: compiled %d shapes; new shapes run as a plain graph from now on. Pad "
                "to fewer lengths, or set attention_plan(jit=True) or attention_plan(jit=False).",
                MOST_PROGRAMS,
            )
    return key in _shapes


# Most scores that are computed whole. Blocks gain nothing up to 64 MiB in a plain graph; XLA has no
# fast ones and computes up to 256 MiB whole. A block of whole rows takes 4 MiB, which fits into the
# caches of two cores (benchmarks/attention/NOTES.md).
MOST_SCORES, MOST_SCORES_BY_XLA = 2**24, 2**26
BLOCK_SCORES = 2**20
# The fewest queries in a tile of a window.
WINDOW_QUERIES = 128


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """A way to compute attention; all give the same result up to rounding.

    Args:
        name: "whole" computes all T x S scores and is the only plan that can return the weights;
            "rowwise", those of some heads and queries at a time; "blockwise", of some queries and
            keys; "windowed", only those inside a window; "fused", one call of cuDNN.
        most_scores: int, the block size of "rowwise" and "windowed".
        query_block, key_block: int, the tile size of "blockwise"; "windowed" has a query_block too.

    Raises:
        ValueError: If the name is unknown, or a size is not a positive integer.

    Example:
        >>> AttentionPlan("blockwise", query_block=64).key_block
        512
    """

    name: str
    most_scores: int = BLOCK_SCORES
    query_block: int = 256
    key_block: int = 512

    def __post_init__(self):
        is_known = self.name in ("whole", "rowwise", "blockwise", "windowed", "fused")
        known = '"auto", "whole", "rowwise", "blockwise", "windowed", "fused" or an AttentionPlan'
        check(is_known, "plan", known, f"{self.name!r}")
        for field in ("most_scores", "query_block", "key_block"):
            size = getattr(self, field)
            check(type(size) is int and size >= 1, field, "a positive integer", f"{size!r}")


@contextlib.contextmanager
def attention_plan(plan=None, *, jit=None):
    """Set how attention is computed inside a `with` block, for calls that do not choose it.

    Functions traced inside the block keep the plan, so build or `fit` the model there. Calls that
    return attention weights are still computed whole. "windowed" applies only to calls with a
    window, "rowwise" and "blockwise" only to calls without one.

    Args:
        plan: "auto", "whole", "rowwise", "blockwise", "windowed", "fused" or an `AttentionPlan`;
            None keeps the plan set outside the block.
        jit: True compiles the attention core with XLA, False runs it as a plain TensorFlow graph,
            "auto" chooses by the device; None keeps the setting outside the block.

    Raises:
        ValueError: If the plan or `jit` is unknown.

    Example:
        >>> long = tf.TensorShape((1, 8, 16384, 64))
        >>> with attention_plan("whole"):
        ...     choose_plan("auto", long, long, False, compiled=True).name
        'whole'
    """
    plan = _preferred.get() if plan is None else plan
    jit = _preferred_jit.get() if jit is None else jit
    _check_jit(jit)
    plan = plan if plan == "auto" else _as_plan(plan)
    with setting(_preferred, plan), setting(_preferred_jit, jit):
        yield


def choose_plan(
    plan, q_shape, k_shape, weights_wanted, compiled, window=None, not_fused="the shapes alone"
):
    """Choose an `AttentionPlan` by the static shapes; `not_fused` says what keeps cuDNN from it."""
    if plan != "auto":
        plan = _as_plan(plan)
        if plan.name != "whole" and weights_wanted:
            got = f'"{plan.name}", which does not compute the attention weights'
            remedy = 'Pass return_attention_weights=False, or plan="whole".'
            raise ArgumentError("plan", '"whole" for the attention weights', got, remedy)
        _check_fused(plan, not_fused)
        if not _fits(plan, window):
            others = '"rowwise" or "blockwise" without' if window is None else '"windowed" with'
            raise ArgumentError("plan", f'"auto", "whole" or {others} a window', f'"{plan.name}"')
        return plan
    if weights_wanted:
        return AttentionPlan("whole")
    preferred = _preferred.get()
    if preferred != "auto" and _fits(preferred, window):
        _check_fused(preferred, not_fused)
        return preferred
    if not_fused is None:
        return AttentionPlan("fused")
    if compiled:
        _log_once(not_fused)
    source = k_shape[-2]
    if window is not None:
        queries = max(WINDOW_QUERIES, window // 2)
        if source is not None and source < 2 * (queries + 2 * window):  # the keys of two tiles
            return AttentionPlan("whole")
        return AttentionPlan("windowed", query_block=queries)
    scores = math.prod(size or 1 for size in (*q_shape[:-1], source))  # 1 for an unknown batch
    if None in (q_shape[-2], source) or scores <= (MOST_SCORES_BY_XLA if compiled else MOST_SCORES):
        return AttentionPlan("whole")
    return AttentionPlan("blockwise" if compiled else "rowwise")


def _fits(plan, window):
    return plan.name in ("whole", "fused") or (plan.name == "windowed") == (window is not None)


def _check_fused(plan, not_fused):
    if plan.name == "fused" and not_fused is not None:
        remedy = 'Pass plan="auto", which uses cuDNN where it can.'
        raise ArgumentError("plan", '"fused" for a call that cuDNN computes', not_fused, remedy)


@functools.cache
def _log_once(not_fused):
    if has_accelerator():
        logging.getLogger("tf_transformer").info("attention: not by cuDNN: %s", not_fused)


def _as_plan(plan):
    return plan if isinstance(plan, AttentionPlan) else AttentionPlan(plan)


# Most elements of a bias, which cuDNN reads from memory: 512 MiB.
MOST_OF_BIAS = 2**28


@functools.cache
def capability():
    """The lowest compute capability of the GPUs that can use cuDNN, or None."""
    if not tf.sysconfig.get_build_info().get("is_cuda_build"):
        return None
    details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
    return min((gpu.get("compute_capability") or (0, 0) for gpu in details), default=None)


_PORTABLE = contextvars.ContextVar("portable_program", default=False)


def without_cudnn():
    """Within this context, programs are traced for any device."""
    return setting(_PORTABLE, True)


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
    if bias is None and (blocked is None or is_of_keys(blocked, causal)):
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


def is_of_keys(blocked, causal):
    """Whether a mask has one row of keys for each example, which may then change places."""
    return not causal and blocked.shape.rank == 4 and blocked.shape[1:3] == (1, 1)


def _draws_once():
    """Whether both passes run once in each run of one program: cuDNN counts the runs of a call."""
    graph = tf.compat.v1.get_default_graph()
    is_compiled = in_xla_program()
    while graph is not None and not isinstance(graph, WhileBodyFuncGraph):
        graph = getattr(graph, "outer_graph", None)
    return is_compiled and graph is None
