"""Checks of queries, keys and values.

Axes: T target (query) length, S source (key) length. Leading axes (batch, heads) are "...".
"""

from tf_transformer.errors import ArgumentError


def check_inputs(q, k, v):
    """Check that queries, keys and values belong together, whatever the scores are."""
    if not (q.dtype.is_floating and k.dtype.is_floating and v.dtype.is_floating):
        raise ArgumentError(
            "q, k, v",
            "float tensors",
            f"{q.dtype.name}, {k.dtype.name} and {v.dtype.name}",
            "Cast them: tf.cast(q, tf.float32).",
        )
    if None in (q.shape.rank, k.shape.rank, v.shape.rank):
        raise ArgumentError("q, k, v", "tensors of known rank", "an unknown rank")
    if not q.shape.rank == k.shape.rank == v.shape.rank >= 2:
        raise ArgumentError(
            "q, k, v",
            "three tensors of the same rank, (..., length, width)",
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}",
        )
    if not k.shape[:-1].is_compatible_with(v.shape[:-1]):
        raise ArgumentError(
            "k, v", "one value for each key", f"k {tuple(k.shape)} and v {tuple(v.shape)}"
        )
    if not q.shape[:-2].is_compatible_with(k.shape[:-2]):
        raise ArgumentError(
            "q, k", "the same batch and head axes", f"q {tuple(q.shape)} and k {tuple(k.shape)}"
        )
