"""The loop of all decoding, greedy decoding and sampling.

Axes: B batch, R rows, L maximum length, V vocabulary, C candidates.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.generation.decoding_rules import (
    IMPOSSIBLE,
    DecodingRules,
    best_allowed,
    check_range,
    refuse_broken,
    unusable,
)


def gather_rows(state, rows):
    """Select rows of every tensor in a state; scalars are unchanged.

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
    """Extend sentences token by token until all are done or the logits are unusable.

    One `tf.while_loop`. With `resize`, an outer loop keeps the state as small as possible: whenever
    half of the sentences are done, they are removed and the batch is halved; the caches start with
    room for 16 tokens, which doubles when full. XLA cannot compile the outer loop; with
    `jit_compile` it compiles the inner one, once for every size. Without `resize` it compiles the
    first state and the loop as one program, which starts faster. Outside of a `tf.function`, every
    call traces and compiles again.

    Args:
        extend: function `(position, state, rows) -> (state, rows, broken)`: one step, and whether
            its logits were unusable.
        state: nest of tensors, passed to `extend`; or a function without arguments that returns it.
        rows: dict of nests of tensors (B, ...): `done`, bool (B,); `output`, the result of each
            sentence; and other inputs of `extend`. Finished sentences do not change.
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
        # All open sentences, padded with finished ones to half of the batch.
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


def _decode_tokens(
    choose, candidates, step, state, batch_size, rules, resize=None, jit_compile=False
):
    """Feed back the chosen tokens until every sentence has ended."""

    def decode_one(position, state, rows):
        done, output = rows["done"], rows["output"]
        logits, state = step(rows["tokens"], state)
        logits = tf.cast(logits, tf.float32)
        broken = tf.reduce_any(unusable(logits) & ~done)
        logits, _, ids = best_allowed(
            logits,
            tf.zeros((tf.shape(logits)[0], 1)),
            candidates,
            output,
            position,
            rules,
        )
        tokens = choose(logits, ids, position)  # (B,)
        nothing_left = tf.equal(logits[:, 0], IMPOSSIBLE)
        done |= tf.equal(tokens, rules.end_id) | nothing_left
        tokens = tf.where(done, 0, tokens)
        here = tf.equal(tf.range(tf.shape(output)[1]), position)
        output = tf.where(here, tf.expand_dims(tokens, 1), output)
        done |= position + 1 >= rows["limits"]
        return state, {**rows, "done": done, "tokens": tokens, "output": output}, broken

    rows = {
        "done": tf.fill((batch_size,), False),
        "limits": rules.sentence_limits(batch_size),
        "tokens": tf.fill((batch_size,), rules.start_id),
        "output": tf.zeros((batch_size, rules.max_length), tf.int32),
    }
    output, broken = decode_loop(decode_one, state, rows, resize, jit_compile)
    refuse_broken(broken)
    return output


def greedy_decode(
    step,
    state,
    batch_size,
    *,
    start_id,
    end_id,
    max_length,
    limits=None,
    min_length=0,
    no_repeat_ngram=0,
    resize=None,
    jit_compile=False,
):
    """Choose the likeliest token at each step until every sentence has ended.

    One `tf.while_loop` over fixed-size buffers; with `resize`, an outer loop around it, see
    `decode_loop`. The padding id 0 is never chosen: it marks the end of a sentence.

    Args:
        step: function `(tokens, state) -> (logits, state)`: tokens (B,) int32, logits (B, V).
        state: the first state for `step`, any nest of tensors whose shapes do not change; or a
            function without arguments that returns it, which `jit_compile` also compiles.
        batch_size: int or scalar int32 tensor, B.
        start_id: int, the token fed first.
        end_id: int above 0, the token that ends a sentence; with an id outside the vocabulary,
            every sentence runs to its limit.
        max_length: int or scalar int32 tensor, L >= 1.
        limits: None, or int32 tensor (B,), at least 1: the maximum length of each sentence, capped
            at L.
        min_length: int, minimum number of tokens before the end token.
        no_repeat_ngram: int n: no n-gram occurs twice in a sentence, unless a token is the only
            possible one, as in a prompt; 0 turns the rule off.
        resize, jit_compile: see `decode_loop`: `resize` removes finished sentences from the batch.
            If the state has rows, pass
            `lambda state, sentences, room: gather_rows(state, sentences)`.

    Returns:
        int32 tensor (B, L), token ids without the end token, 0 after the end.

    Raises:
        ValueError: If a number is out of range; tf.errors.InvalidArgumentError for a tensor.
        tf.errors.InvalidArgumentError: If a row of logits has NaN, infinity or no possible token.
            XLA cannot raise errors; decoding stops there.

    Example:
        >>> def count_up(tokens, state):
        ...     return tf.one_hot(tokens + 1, 6), state
        >>> greedy_decode(count_up, (), 1, start_id=1, end_id=4, max_length=5).numpy().tolist()
        [[2, 3, 0, 0, 0]]
    """
    return _decode_tokens(
        lambda logits, ids, position: ids[:, 0],
        1,
        step,
        state,
        batch_size,
        DecodingRules(start_id, end_id, max_length, limits, min_length, no_repeat_ngram),
        resize,
        jit_compile,
    )


def sample_decode(
    step,
    state,
    batch_size,
    *,
    start_id,
    end_id,
    max_length,
    temperature=1.0,
    top_k=None,
    top_p=None,
    seed=0,
    limits=None,
    min_length=0,
    no_repeat_ngram=0,
    resize=None,
    jit_compile=False,
):
    """Sample each token from the model's distribution until every sentence has ended.

    softmax(logits / temperature), restricted to the `top_k` likeliest tokens (Fan et al. 2018,
    section 5.1), then to the smallest set of them with total probability `top_p` (Holtzman et al.
    2020, section 3.1), and renormalized. Samples are drawn with the Gumbel-max trick from random
    numbers that depend only on `seed`: the same in eager mode, in a graph and in another process,
    but different under XLA.

    Args:
        step, state, batch_size, start_id, end_id, max_length, limits, min_length, no_repeat_ngram,
            resize, jit_compile: see `greedy_decode`. Each position in the batch has its own random
            numbers, so a result depends on its position, and thus on `resize`.
        temperature: float above 0, or scalar tensor; values below 1 make likely tokens likelier.
            For the limit 0, use `greedy_decode`.
        top_k: None, or int from 1 to V, or scalar int32 tensor of at least 1.
        top_p: None, or float above 0 and at most 1, or scalar tensor.
        seed: int or scalar int32 tensor.

    Returns:
        int32 tensor (B, L), token ids without the end token, 0 after the end.

    Raises:
        ValueError: If a number is out of range; tf.errors.InvalidArgumentError for a tensor.
        tf.errors.InvalidArgumentError: See `greedy_decode`.

    Example:
        >>> def either(tokens, state):
        ...     return tf.math.log([[0.0, 0.0, 0.5, 0.5]]), state
        >>> sample_decode(
        ...     either, (), 1, start_id=1, end_id=3, max_length=4, seed=1
        ... ).shape.as_list()
        [1, 4]
    """
    check_range("temperature", temperature, 0.0, above=True)
    check_range("top_k", top_k, 1)
    check_range("top_p", top_p, 0.0, 1.0, above=True)
    check_range("seed", seed, -(2**31), 2**31 - 1)  # one number, not a pair as in TensorFlow

    def choose(logits, ids, position):
        if tf.is_tensor(top_k):
            logits = tf.where(tf.range(logits.shape[-1]) < top_k, logits, IMPOSSIBLE)
        else:
            check_range("top_k", top_k, 1, logits.shape[-1])  # there are no more than V
        logits = logits / temperature
        if top_p is not None:
            logits = _nucleus(logits, top_p)
        uniform = tf.random.stateless_uniform(
            tf.shape(logits), tf.stack([seed, position]), minval=_TINY
        )
        drawn = tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), axis=-1)
        return tf.gather(ids, drawn, batch_dims=1)

    return _decode_tokens(
        choose,
        None if tf.is_tensor(top_k) else top_k,
        step,
        state,
        batch_size,
        DecodingRules(start_id, end_id, max_length, limits, min_length, no_repeat_ngram),
        resize,
        jit_compile,
    )


_TINY = 1.1754944e-38  # the smallest normal float32, since log(0) is infinite


def _nucleus(logits, share):
    """Keep the smallest set of candidates, (B, C) with the best first, with this total share."""
    probabilities = tf.nn.softmax(logits)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    # A sum of all candidates but the last may be rounded to 1.
    return tf.where((before < share) | (share >= 1), logits, IMPOSSIBLE)
