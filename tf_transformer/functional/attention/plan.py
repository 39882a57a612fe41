"""How one attention is computed: whole or in blocks, with XLA or without.

Axes: T target (query) length, S source (key) length; leading axes (batch, heads) are "...".
"""

import contextlib
import contextvars
import dataclasses
import math

# How many scores are computed whole at most: up to 64 MiB of them, blocks gain nothing. A block of
# whole rows has 4 MiB, what the caches of two cores hold (benchmarks/NOTES.md, attention core).
MOST_SCORES = 2**24
CACHED_SCORES = 2**20


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """A way to compute attention; the result is the same but for rounding.

    Args:
        name: "whole" makes all T x S scores, and the weights for whoever asks. "rowwise" makes
            those of some heads and queries at a time, `rowwise_attention`; "blockwise" those of
            some queries with some keys, `blockwise_attention`: neither has weights to give.
        most_scores: int, the size of a block of "rowwise".
        query_block, key_block: int, the sides of a tile of "blockwise".

    Raises:
        ValueError: an unknown name; a size that is no positive integer.

    Example:
        >>> AttentionPlan("blockwise", query_block=64).key_block
        512
    """

    name: str
    most_scores: int = CACHED_SCORES
    query_block: int = 256
    key_block: int = 512

    def __post_init__(self):
        if self.name not in ("whole", "rowwise", "blockwise"):
            raise ValueError(
                f'plan: expected "auto", "whole", "rowwise", "blockwise" or an AttentionPlan, got '
                f"{self.name!r}."
            )
        for field in ("most_scores", "query_block", "key_block"):
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
        plan: "auto", "whole", "rowwise", "blockwise" or an `AttentionPlan`.

    Raises:
        ValueError: an unknown plan.

    Example:
        >>> long = tf.TensorShape((1, 8, 16384, 64))
        >>> with attention_plan("whole"):
        ...     choose_plan("auto", long, long, False, compiled=True).name
        'whole'
    """
    token = _preferred.set(plan if plan == "auto" else _as_plan(plan))
    try:
        yield
    finally:
        _preferred.reset(token)


def choose_plan(plan, q_shape, k_shape, weights_wanted, compiled):
    """Settle how one attention is computed.

    | asked for | scores | plain graph | XLA |
    |---|---|---|---|
    | weights | any | whole | whole |
    | no weights | up to `MOST_SCORES`, or of unknown lengths | whole | whole |
    | no weights | more | rowwise | blockwise |

    An unknown batch counts as one.

    Args:
        plan: "auto" (the table, or what `attention_plan` says), "whole", "rowwise", "blockwise"
            or an `AttentionPlan`.
        q_shape, k_shape: static shapes of queries and keys, (..., T, H) and (..., S, H).
        weights_wanted: bool, whether the attention weights are to be returned.
        compiled: bool, whether XLA compiles the core.

    Returns:
        `AttentionPlan`.

    Raises:
        ValueError: an unknown plan; one without weights for a call that wants them.

    Example:
        >>> long = tf.TensorShape((1, 8, 16384, 64))
        >>> choose_plan("auto", long, long, weights_wanted=False, compiled=True).name
        'blockwise'
    """
    if plan != "auto":
        plan = _as_plan(plan)
        if plan.name != "whole" and weights_wanted:
            raise ValueError(
                f'plan: "{plan.name}" never makes the attention weights. Pass '
                f'return_attention_weights=False, or plan="whole".'
            )
        return plan
    preferred = _preferred.get()
    if weights_wanted:
        return AttentionPlan("whole")
    if preferred != "auto":
        return preferred
    lengths = q_shape[-2], k_shape[-2]
    scores = math.prod(size or 1 for size in (*q_shape[:-1], k_shape[-2]))
    if None in lengths or scores <= MOST_SCORES:
        return AttentionPlan("whole")
    return AttentionPlan("blockwise" if compiled else "rowwise")


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
