"""How one attention is computed: whole or in blocks, with XLA or without.

Axes: T target (query) length, S source (key) length; leading axes (batch, heads) are "...".
"""

import contextlib
import contextvars
import dataclasses
import math

# Above this many bytes of float32 scores, "auto" computes in blocks. Below, the whole softmax is
# the faster one on a CPU (benchmarks/NOTES.md, attention core).
MOST_SCORES = 2**28


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """A way to compute attention; the result is the same but for rounding.

    Args:
        name: "whole" makes all T x S scores, and the weights for whoever asks; "blockwise" never
            has more than one tile of scores in memory and makes no weights.
        query_block, key_block: int, the sides of a tile; only "blockwise" has tiles.

    Raises:
        ValueError: an unknown name; a block size that is no positive integer.

    Example:
        >>> AttentionPlan("blockwise", query_block=64).key_block
        512
    """

    name: str
    query_block: int = 256
    key_block: int = 512

    def __post_init__(self):
        if self.name not in ("whole", "blockwise"):
            raise ValueError(
                f'plan: expected "auto", "whole" or "blockwise", or an AttentionPlan of one of '
                f"the latter two, got {self.name!r}."
            )
        for field in ("query_block", "key_block"):
            size = getattr(self, field)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{field}: expected a positive integer, got {size!r}.")


_preferred = contextvars.ContextVar("attention_plan", default="auto")


@contextlib.contextmanager
def attention_plan(plan):
    """Set the plan of every attention inside a `with` block that is not given one itself.

    What a model's layers trace inside the block keeps the plan: build or `fit` it in there. A call
    that asks for attention weights is computed whole all the same.

    Args:
        plan: "auto", "whole", "blockwise" or an `AttentionPlan`.

    Raises:
        ValueError: an unknown plan.

    Example:
        >>> long = tf.TensorShape((1, 8, 16384, 64))
        >>> with attention_plan("whole"):
        ...     choose_plan("auto", long, long, weights_wanted=False).name
        'whole'
    """
    token = _preferred.set(plan if plan == "auto" else _as_plan(plan))
    try:
        yield
    finally:
        _preferred.reset(token)


def choose_plan(plan, q_shape, k_shape, weights_wanted):
    """Settle how one attention is computed.

    | asked for | lengths | plan |
    |---|---|---|
    | weights | any | whole |
    | no weights | float32 scores of up to `MOST_SCORES` bytes, or unknown | whole |
    | no weights | longer | blockwise |

    Args:
        plan: "auto" (the table, or what `attention_plan` says), "whole", "blockwise" or an
            `AttentionPlan`.
        q_shape, k_shape: static shapes of queries and keys, (..., T, H) and (..., S, H).
        weights_wanted: bool, whether the attention weights are to be returned.

    Returns:
        `AttentionPlan`.

    Raises:
        ValueError: an unknown plan; "blockwise" for a call that wants the weights.

    Example:
        >>> long = tf.TensorShape((1, 8, 16384, 64))
        >>> choose_plan("auto", long, long, weights_wanted=False).name
        'blockwise'
    """
    if plan != "auto":
        plan = _as_plan(plan)
        if plan.name == "blockwise" and weights_wanted:
            raise ValueError(
                'plan: "blockwise" never makes the attention weights. Pass '
                'return_attention_weights=False, or plan="whole".'
            )
        return plan
    preferred = _preferred.get()
    if weights_wanted:
        return AttentionPlan("whole")
    if preferred != "auto":
        return preferred
    sizes = (*q_shape[:-1], k_shape[-2])
    if None in sizes or 4 * math.prod(sizes) <= MOST_SCORES:
        return AttentionPlan("whole")
    return AttentionPlan("blockwise")


def use_xla(jit):
    """Decide whether one attention is compiled with XLA.

    Args:
        jit: True, False or "auto".

    Returns:
        bool.

    Raises:
        ValueError: `jit` is none of the three.

    Example:
        >>> use_xla(True)
        True
    """
    if jit not in (True, False, "auto"):
        raise ValueError(f'jit: expected True, False or "auto", got {jit!r}.')
    # Measured on CPUs only: the plain graph is the faster one (benchmarks/NOTES.md).
    return False if jit == "auto" else jit


def _as_plan(plan):
    return plan if isinstance(plan, AttentionPlan) else AttentionPlan(plan)
