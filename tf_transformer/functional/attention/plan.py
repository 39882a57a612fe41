"""How attention is computed: whole or in blocks, and whether XLA compiles it.

Axes: T target (query) length, S source (key) length; leading axes (batch, heads) are "...".
"""

import contextlib
import contextvars
import dataclasses
import functools
import logging
import math

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.tracing import has_accelerator, in_xla_program

# Programs that "auto" compiles in one process: each new shape takes XLA 0.2 to 1 second.
MOST_PROGRAMS = 64
_shapes = set()
_preferred = contextvars.ContextVar("attention_plan", default="auto")
_preferred_jit = contextvars.ContextVar("attention_jit", default="auto")


def use_xla(jit, *shapes):
    """Whether XLA compiles the attention core, for "auto" by this table and the static shapes.

    | where the core runs | "auto", unless `attention_plan` sets a default |
    |---|---|
    | in a function that XLA compiles, `jit_compile=True` | part of that program, in XLA's form |
    | on a GPU or TPU, all shapes known | compiled |
    | on a GPU or TPU, a size unknown, or `MOST_PROGRAMS` shapes compiled before | plain graph |
    | on a CPU | plain graph, which is faster there (benchmarks/attention/NOTES.md) |
    """
    _check_jit(jit)
    jit = _preferred_jit.get() if jit == "auto" else jit
    if jit != "auto":
        return jit
    return in_xla_program() or (has_accelerator() and _is_admitted(shapes))


def _check_jit(jit):
    if jit not in (True, False, "auto"):
        raise ArgumentError("jit", 'True, False or "auto"', f"{jit!r}")


def _is_admitted(shapes):
    if not all(shape.is_fully_defined() for shape in shapes):
        return False
    key = tuple(map(tuple, shapes))
    if key in _shapes:
        return True
    if len(_shapes) == MOST_PROGRAMS:
        return False
    _shapes.add(key)
    if len(_shapes) == MOST_PROGRAMS:
        logging.getLogger("tf_transformer").warning(
            "attention: compiled %d shapes; new shapes run as a plain graph from now on. Pad to "
            "fewer lengths, or set attention_plan(jit=True) or attention_plan(jit=False).",
            MOST_PROGRAMS,
        )
    return True


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
        if self.name not in ("whole", "rowwise", "blockwise", "windowed", "fused"):
            expected = '"auto", "whole", "rowwise", "blockwise", "windowed", "fused" or an '
            expected += "AttentionPlan"
            raise ArgumentError("plan", expected, f"{self.name!r}")
        for field in ("most_scores", "query_block", "key_block"):
            size = getattr(self, field)
            if type(size) is not int or size < 1:
                raise ArgumentError(field, "a positive integer", f"{size!r}")


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
    plan_before = _preferred.set(plan if plan == "auto" else _as_plan(plan))
    jit_before = _preferred_jit.set(jit)
    try:
        yield
    finally:
        _preferred.reset(plan_before)
        _preferred_jit.reset(jit_before)


def choose_plan(
    plan, q_shape, k_shape, weights_wanted, compiled, window=None, not_fused="the shapes alone"
):
    """Choose how attention is computed, unless `attention_plan` sets a default.

    | requested | scores | plain graph | XLA |
    |---|---|---|---|
    | weights | any | whole | whole |
    | no weights, `not_fused` is None | any | - | fused |
    | no weights, unknown lengths | any | whole | whole |
    | no weights | up to `MOST_SCORES` | whole | whole |
    | no weights | up to `MOST_SCORES_BY_XLA` | rowwise | whole |
    | no weights | more | rowwise | blockwise |

    With a window and without weights it is windowed, or whole with fewer keys than in two tiles. An
    unknown batch size counts as 1. The shapes are static, (..., T, H) and (..., S, H). `not_fused`
    says what keeps cuDNN from computing the call.
    """
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
        if source is not None and source < 2 * (queries + 2 * window):
            return AttentionPlan("whole")
        return AttentionPlan("windowed", query_block=queries)
    scores = math.prod(size or 1 for size in (*q_shape[:-1], source))
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
