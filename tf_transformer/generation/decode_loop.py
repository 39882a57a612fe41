"""The loop of every decoder, from which finished sentences can leave.

Axes: B batch.
"""

import tensorflow as tf

from tf_transformer.generation.rows import gather_rows

# A step of fewer sentences takes about the same time.
_SMALLEST = 8


def decode_loop(extend, state, rows, select=None, jit_compile=False):
    """Extend sentences token by token, until all are done or the model breaks.

    One `tf.while_loop`. With `select` there is another one around it: whenever half of the
    sentences are done, they leave, and the rest goes on in half the batch. XLA cannot compile that
    one; with `jit_compile` it compiles the inner one, for every size of the batch.

    Args:
        extend: function `(position, state, rows) -> (state, rows, broken)`: one step, and whether
            the model has broken in it.
        state: nest of tensors, what the model wants.
        rows: dict of nests of tensors (B, ...): `done`, bool (B,); `output`, what a sentence is in
            the end; and whatever else `extend` needs. Sentences that are done do not change.
        select: None, or function `(state, sentences) -> state`, which goes on with the sentences at
            these places, int32 (B',).
        jit_compile: bool, only with `select`.

    Returns:
        `(output, broken)`: of all sentences, and scalar int32, the step that broke, or -1.

    Raises:
        ValueError: `jit_compile` without `select`.

    Example:
        >>> def count(position, state, rows):
        ...     output = tf.where(rows["done"], rows["output"], rows["output"] + 1)
        ...     return state, {"done": output >= state, "output": output}, False
        >>> rows = {"done": tf.constant([False, False]), "output": tf.constant([0, 1])}
        >>> decode_loop(count, tf.constant([5, 2]), rows)[0].numpy().tolist()
        [5, 2]
    """
    if jit_compile and select is None:
        raise ValueError(
            "jit_compile: expected select beside it, got none. To compile the whole decoding, put "
            "it into a tf.function(jit_compile=True)."
        )

    def goes_on(position, broken, state, rows):
        size = tf.shape(rows["done"])[0]
        few = tf.where(size > _SMALLEST, size // 2, 0) if select else 0
        still_open = tf.reduce_sum(tf.cast(~rows["done"], tf.int32))
        return (still_open > few) & (broken < 0)

    def extend_all(position, broken, state, rows):
        state, rows, breaks = extend(position, state, rows)
        return position + 1, tf.where(breaks, position, broken), state, rows

    def run(*variables):
        return tf.while_loop(goes_on, extend_all, variables)

    variables = (tf.constant(0), tf.constant(-1), state, rows)
    if select is None:
        _, broken, _, rows = run(*variables)
        return rows["output"], broken

    run = tf.function(run, jit_compile=jit_compile, autograph=False)

    def unfinished(output, places, position, broken, state, rows):
        return ~tf.reduce_all(rows["done"]) & (broken < 0)

    def run_and_shrink(output, places, *variables):
        position, broken, state, rows = run(*variables)
        output = tf.nest.map_structure(
            lambda whole, part: tf.tensor_scatter_nd_update(whole, places[:, tf.newaxis], part),
            output,
            rows["output"],
        )
        # The open ones, and of the others as many as make up the half.
        order = tf.argsort(tf.cast(rows["done"], tf.int32), stable=True)
        order = order[: tf.shape(order)[0] // 2]
        places, rows = gather_rows((places, rows), order)
        return output, places, position, broken, select(state, order), rows

    places = tf.range(tf.shape(rows["done"])[0])
    variables = (rows["output"], places, *variables)
    output, _, _, broken, _, _ = tf.while_loop(
        unfinished, run_and_shrink, variables, shape_invariants=_of_any_batch(variables)
    )
    return output, broken


def _of_any_batch(nest):
    return tf.nest.map_structure(
        lambda x: tf.TensorShape([None, *x.shape[1:]]) if x.shape.rank else x.shape, nest
    )
