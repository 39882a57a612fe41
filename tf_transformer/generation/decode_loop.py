"""The loop over positions that all decoding strategies share, and rows of its state.

Axes: R rows, B batch.
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


# A step with fewer sentences takes about the same time.
_SMALLEST = 8
_FIRST_ROOM = 16


def decode_loop(extend, state, rows, resize=None, jit_compile=False):
    """Extend sentences token by token, until all are done or the logits are unusable.

    One `tf.while_loop`. With `resize`, an outer loop keeps the state as small as possible: whenever
    half of the sentences are done, they are removed and the batch is halved; the caches start with
    room for 16 tokens, which doubles when it is full. XLA cannot compile the outer loop; with
    `jit_compile` it compiles the inner one, once for every size. Without `resize` it compiles the
    first state and the loop as one program, which starts faster. Outside of a `tf.function`, every
    call traces and compiles again.

    Args:
        extend: function `(position, state, rows) -> (state, rows, broken)`: one step, and whether
            its logits were unusable.
        state: nest of tensors, passed to `extend`; or a function without arguments that makes it.
        rows: dict of nests of tensors (B, ...): `done`, bool (B,); `output`, the result of each
            sentence; and whatever else `extend` needs. Finished sentences do not change.
        resize: None, or function `(state, sentences, room) -> state` that keeps the sentences at
            these indices, int32 (B',), with room for `room` tokens each, a scalar int32 tensor. It
            is also called before the first step.
        jit_compile: bool.

    Returns:
        `(output, broken)`: the results of all sentences, and scalar int32, the failed step or -1.
    """

    def made():
        return state() if callable(state) else state

    def goes_on(position, broken, room, state, rows):
        few = _half(rows["done"]) if resize else 0
        return (_still_open(rows["done"]) > few) & (position < room) & (broken < 0)

    def extend_all(position, broken, room, state, rows):
        state, rows, breaks = extend(position, state, rows)
        return position + 1, tf.where(breaks, position, broken), room, state, rows

    def run(*variables):
        return tf.while_loop(goes_on, extend_all, variables)

    def run_to_the_end():
        _, broken, _, _, ended = run(tf.constant(0), tf.constant(-1), tf.int32.max, made(), rows)
        return ended["output"], broken

    if resize is None:
        if jit_compile:
            run_to_the_end = tf.function(run_to_the_end, jit_compile=True, autograph=False)
        return run_to_the_end()

    state, run = made(), tf.function(run, jit_compile=jit_compile, autograph=False)

    def unfinished(output, places, position, broken, room, state, rows):
        return ~tf.reduce_all(rows["done"]) & (broken < 0)

    def resize_and_run(output, places, position, broken, room, state, rows):
        # All open sentences, filled up with finished ones to half of the batch.
        done = rows["done"]
        kept = tf.where(_still_open(done) > _half(done), tf.size(done), tf.size(done) // 2)
        order = tf.argsort(tf.cast(done, tf.int32), stable=True)[:kept]
        places, rows = gather_rows((places, rows), order)
        room = tf.where(position < room, room, 2 * room)
        state = resize(state, order, room)
        position, broken, room, state, rows = run(position, broken, room, state, rows)
        output = tf.nest.map_structure(
            lambda whole, part: tf.tensor_scatter_nd_update(whole, places[:, tf.newaxis], part),
            output,
            rows["output"],
        )
        return output, places, position, broken, room, state, rows

    places, room = tf.range(tf.size(rows["done"])), tf.constant(_FIRST_ROOM)
    position, broken = tf.constant(0), tf.constant(-1)
    variables = (rows["output"], places, position, broken, room, state, rows)
    shapes = (*_of_any_batch(variables[:5]), _of_any_size(state), _of_any_batch(rows))
    output, _, _, broken, _, _, _ = tf.while_loop(
        unfinished, resize_and_run, variables, shape_invariants=shapes
    )
    return output, broken


def _still_open(done):
    return tf.reduce_sum(tf.cast(~done, tf.int32))


def _half(done):
    return tf.where(tf.size(done) > _SMALLEST, tf.size(done) // 2, 0)


def _of_any_batch(nest):
    return tf.nest.map_structure(
        lambda x: tf.TensorShape([None, *x.shape[1:]]) if x.shape.rank else x.shape, nest
    )


def _of_any_size(nest):
    return tf.nest.map_structure(lambda x: tf.TensorShape([None] * x.shape.rank), nest)
