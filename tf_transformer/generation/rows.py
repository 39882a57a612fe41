"""Selecting and repeating the rows of a decoding state.

Axes: R rows.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError


def gather_rows(state, rows):
    """Select rows of every tensor in a state; scalars stay as they are.

    Args:
        state: nest of tensors (R, ...) and scalars.
        rows: int32 tensor (Q,).

    Returns:
        The same nest of tensors (Q, ...) and scalars.

    Raises:
        ValueError: If a tensor has unknown rank, since it may be a scalar.

    Example:
        >>> gather_rows({"x": tf.constant([5, 6]), "t": tf.constant(9)}, [1, 1])["x"].numpy()
        array([6, 6], dtype=int32)
    """
    return _map_rows(lambda tensor: tf.gather(tensor, rows), state)


def repeat_rows(state, times):
    """Repeat each row of every tensor of a state, as `beam_search` expects.

    Args:
        state: nest of tensors (R, ...) and scalars.
        times: int.

    Returns:
        The same nest of tensors (R * times, ...) and scalars.

    Raises:
        ValueError: See `gather_rows`.

    Example:
        >>> repeat_rows(tf.constant([5, 6]), 2).numpy().tolist()
        [5, 5, 6, 6]
    """
    return _map_rows(lambda tensor: tf.repeat(tensor, times, axis=0), state)


def check_rows(state, rows):
    """Check that a state has one row for each beam, as far as its shapes are known."""
    if tf.is_tensor(rows):
        return
    for tensor in map(tf.convert_to_tensor, tf.nest.flatten(state)):
        if tensor.shape.rank and not tensor.shape[:1].is_compatible_with([rows]):
            raise ArgumentError(
                "state",
                f"a row for each beam of each sentence, {rows}",
                f"shape {tensor.shape}",
                "Use repeat_rows(state, beam_size).",
            )


def _map_rows(function, state):
    def of_one(tensor):
        tensor = tf.convert_to_tensor(tensor)
        if tensor.shape.rank is None:
            raise ArgumentError(
                "state", "tensors of known rank", tensor, "Set it with tf.ensure_shape."
            )
        return function(tensor) if tensor.shape.rank else tensor

    return tf.nest.map_structure(of_one, state)
