"""The loop of all decoding, greedy decoding and sampling.

Axes: B batch, R rows, V vocabulary, L maximum length.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.generation.rules import IMPOSSIBLE, DecodingRules, best_allowed, check_range


def unusable(logits):
    """Rows from which no token can be chosen: NaN, infinity, or no possible token."""
    # A sum propagates NaN; a maximum may not.
    not_a_number = tf.math.is_nan(tf.reduce_sum(logits, axis=-1))
    return not_a_number | ~tf.math.is_finite(tf.reduce_max(logits, axis=-1))


def refuse_unusable(failed_step):
    """Report the step, or -1, at which logits were `unusable`; does nothing under XLA."""
    message = "logits: expected numbers, got NaN, infinity or no possible token at step (from 0)"
    remedy = "Check the weights: diverged training produces such logits."
    tf.debugging.Assert(failed_step < 0, [message, failed_step, remedy])


def without_unused_ids(step, num_tokens):
    """Return a step function that omits the logits of ids without a token."""

    def limited(tokens, state):
        logits, state = step(tokens, state)
        has_more = num_tokens not in (None, logits.shape[-1])
        return logits[:, :num_tokens] if has_more else logits, state

    return limited


def gather_rows(state, rows):
    """Select rows of every tensor in a state; scalars are unchanged.

    Args:
        state: nest of tensors (R, ...) and scalars.
        rows: int32 tensor (Q,), the rows of the result.

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
        state: see `gather_rows`, also for the error.
        times: int; the result has R * times rows.

    Example:
        >>> repeat_rows(tf.constant([5, 6]), 2).numpy().tolist()
        [5, 5, 6, 6]
    """
    return _map_rows(lambda tensor: tf.repeat(tensor, times, axis=0), state)


def _map_rows(function, state):
    def of_one(tensor):
        tensor = tf.convert_to_tensor(tensor)
        if tensor.shape.rank is None:
            remedy = "Set it with tf.ensure_shape."
            raise ArgumentError("state", "tensors of known rank", tensor, remedy)
        return function(tensor) if tensor.shape.rank else tensor

    return tf.nest.map_structure(of_one, state)


# A step with fewer sentences takes about the same time.
_SMALLEST = 8
_FIRST_ROOM = 16


def decode_loop(extend, state, sentences, resize=None, jit_compile=False):
    """Return the `output` of all sentences once they are done, and the step that failed or -1."""
    # `extend` is `(position, state, sentences) -> (state, sentences, whether the step failed)`;
    # `sentences` a dict of nests of tensors (B, ...): `done`, bool (B,), `output`, and other inputs
    # of `extend`. Finished ones do not change. For the other arguments see `greedy_decode`.
    #
    # With `resize`, an outer loop keeps the state as small as possible: whenever half of the
    # sentences are done, they are removed and the batch is halved; the caches start with room for
    # 16 tokens, which doubles when full. XLA compiles only the inner loop, once for every size.
    # Without `resize` it compiles the first state and the loop as one program, which starts faster.

    def first_state():
        return state() if callable(state) else state

    def goes_on(position, failed_step, room, state, sentences):
        few = _count_worth_halving(sentences["done"]) if resize else 0
        return (_still_open(sentences["done"]) > few) & (position < room) & (failed_step < 0)

    def extend_all(position, failed_step, room, state, sentences):
        state, sentences, failed = extend(position, state, sentences)
        return position + 1, tf.where(failed, position, failed_step), room, state, sentences

    def run(*variables):
        return tf.while_loop(goes_on, extend_all, variables)

    def run_to_the_end():
        variables = tf.constant(0), tf.constant(-1), tf.int32.max, first_state(), sentences
        _, failed_step, _, _, ended = run(*variables)
        return ended["output"], failed_step

    if resize is None:
        if jit_compile:
            run_to_the_end = tf.function(run_to_the_end, jit_compile=True, autograph=False)
        return run_to_the_end()

    state, run = first_state(), tf.function(run, jit_compile=jit_compile, autograph=False)

    def unfinished(output, places, position, failed_step, room, state, sentences):
        return ~tf.reduce_all(sentences["done"]) & (failed_step < 0)

    def resize_and_run(output, places, position, failed_step, room, state, sentences):
        # All open sentences, padded with finished ones to half of the batch.
        done = sentences["done"]
        halved = _still_open(done) <= _count_worth_halving(done)
        count = tf.where(halved, tf.size(done) // 2, tf.size(done))
        kept = tf.argsort(tf.cast(done, tf.int32), stable=True)[:count]
        places, sentences = gather_rows((places, sentences), kept)
        room = tf.where(position < room, room, 2 * room)
        variables = position, failed_step, room, resize(state, kept, room), sentences
        position, failed_step, room, state, sentences = run(*variables)

        def updated(whole, part):
            return tf.tensor_scatter_nd_update(whole, places[:, tf.newaxis], part)

        output = tf.nest.map_structure(updated, output, sentences["output"])
        return output, places, position, failed_step, room, state, sentences

    places, room = tf.range(tf.size(sentences["done"])), tf.constant(_FIRST_ROOM)
    position, failed_step = tf.constant(0), tf.constant(-1)
    variables = (sentences["output"], places, position, failed_step, room, state, sentences)
    shapes = (*_of_any_batch(variables[:5]), of_any_size(state), _of_any_batch(sentences))
    output, _, _, failed_step, *_ = tf.while_loop(
        unfinished, resize_and_run, variables, shape_invariants=shapes
    )
    return output, failed_step


def _still_open(done):
    return tf.reduce_sum(tf.cast(~done, tf.int32))


def _count_worth_halving(done):
    """The number of open sentences at which a batch is halved; 0 if it is small already."""
    return tf.where(tf.size(done) > _SMALLEST, tf.size(done) // 2, 0)


def _of_any_batch(nest):
    return tf.nest.map_structure(
        lambda x: tf.TensorShape([None, *x.shape[1:]]) if x.shape.rank else x.shape, nest
    )


def of_any_size(nest):
    """The shapes of tensors of which only the ranks are known."""
    return tf.nest.map_structure(lambda x: tf.TensorShape([None] * x.shape.rank), nest)


def _decode_tokens(
    choose, candidates, step, state, batch_size, rules, resize, jit_compile, is_complete
):
    """Feed back the chosen tokens until every sentence has ended."""
    extend = extension(choose, candidates, step, rules, is_complete)
    sentences = first_sentences(rules, batch_size)
    output, failed_step = decode_loop(extend, state, sentences, resize, jit_compile)
    refuse_unusable(failed_step)
    return output


def first_sentences(rules, batch_size):
    """The sentences of `decode_loop` before the first token."""
    of_sentences = rules.of_sentences(batch_size)
    return {
        "done": tf.fill((batch_size,), False),
        "tokens": of_sentences["start_id"],
        "output": tf.fill((batch_size, rules.max_length), rules.filler),
        "row": tf.range(batch_size),
        **of_sentences,
    }


def extension(choose, candidates, step, rules, is_complete=None):
    """The function `extend` of `decode_loop` that adds a chosen token to each sentence."""

    def extend(position, state, sentences):
        done, output = sentences["done"], sentences["output"]
        logits, state = step(sentences["tokens"], state)
        logits = tf.cast(logits, tf.float32)
        failed = tf.reduce_any(unusable(logits) & ~done)
        offsets = tf.zeros((tf.shape(logits)[0], 1))
        given = {name: sentences[name] for name in rules.OF_SENTENCES}
        choice = best_allowed(logits, offsets, candidates, output, position, rules, given)
        tokens = choose(choice[0], choice[2], position, sentences["row"])  # (B,)
        done |= tf.equal(choice[0][:, 0], IMPOSSIBLE)  # nothing is left
        own = position >= given["prompt_lengths"]
        ends = rules.is_end(tokens) & own
        tokens = tf.where(done | (ends & (rules.pad_id is not None)), rules.filler, tokens)
        here = tf.equal(tf.range(tf.shape(output)[1]), position)
        output = tf.where(here, tf.expand_dims(tokens, 1), output)
        done |= ends | (position + 1 >= given["limits"])
        if is_complete is not None:
            done |= own & is_complete(output[:, : position + 1], given)
        return state, {**sentences, "done": done, "tokens": tokens, "output": output}, failed

    return extend


def likeliest(logits, ids, position, row):
    """The choice of `greedy_decode`."""
    return ids[:, 0]


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
    pad_id=0,
    prompt_lengths=0,
    token_rules=None,
    is_complete=None,
):
    """Choose the likeliest token at each step until every sentence has ended.

    One `tf.while_loop` over fixed-size buffers. The padding is never chosen: it marks the end of a
    sentence.

    Args:
        step: function `(tokens, state) -> (logits, state)`: tokens (B,) int32, logits (B, V).
        state: the first state for `step`, any nest of tensors whose shapes do not change; or a
            function without arguments that returns it, which `jit_compile` also compiles.
        batch_size: int or scalar int32 tensor, B.
        start_id: int, or int32 tensor (B,), the token fed first.
        end_id: int, or tuple of int, the tokens that end a sentence; with `()`, or an id outside
            the vocabulary, every sentence runs to its limit.
        max_length: int or scalar int32 tensor, L >= 1.
        limits: None, or int32 tensor (B,), at least 1: the maximum length of each sentence, capped
            at L.
        min_length: int, or int32 tensor (B,), minimum number of tokens before the end token.
        no_repeat_ngram: int n: no n-gram occurs twice in a sentence, unless a token is the only
            possible one, as in a prompt; 0 turns the rule off.
        resize: None, or function `(state, kept, room) -> state` that keeps the sentences at these
            indices, int32 (B',), with room for `room` tokens each, scalar int32. It is called
            first, when the room is full, and to remove finished sentences. If the state has rows,
            pass `lambda state, kept, room: gather_rows(state, kept)`.
        jit_compile: bool, whether XLA compiles the loop; outside of a `tf.function`, in every call.
        pad_id: int, the id of padding, which is not `end_id`; None if the vocabulary has none:
            the output then contains the end token, and the (first) `end_id` after it.
        prompt_lengths: int32 tensor (B,), or 0, how many tokens at the beginning are a prompt's,
            see `LanguageModel.start`: no rule applies to them, and none of them ends a sentence.
        token_rules: None, or dict with any of these rules, those of transformers:
            `forced_first`, `forced_last`: int, the first token if there is no prompt, and the token
            at the limit; their log probability is 0.
            `bad_words`: list of lists of int, sequences that do not occur.
            `suppressed_first`: list of int, tokens that are not the first after the prompt, or the
            first after `forced_first`.
            `repetition_penalty`: float p > 0; the logits of tokens in the text so far are divided
            by p, or multiplied if they are negative (Keskar et al. 2019, section 4.1). Beam search
            applies it to log probabilities.
            `renormalize`: bool, whether the probabilities of the tokens that are left sum to 1;
            only matters in beam search.
            `counts_start`: bool, whether the start token is a part of the text for these rules and
            `no_repeat_ngram`.
        is_complete: None, or function `(ids, sentences) -> bool (B,)`, called after each step,
            whether a sentence ends here: ids (B, T), the tokens so far after the start token, and a
            dict of its `start_id` and `prompt_lengths`, int32 (B,).

    Returns:
        int32 tensor (B, L), token ids without the end token, padding after the end.

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
    others = (no_repeat_ngram, pad_id, prompt_lengths, token_rules)
    rules = DecodingRules(start_id, end_id, max_length, limits, min_length, *others)
    others = (resize, jit_compile, is_complete)
    return _decode_tokens(likeliest, 1, step, state, batch_size, rules, *others)


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
    pad_id=0,
    prompt_lengths=0,
    token_rules=None,
    is_complete=None,
):
    """Sample each token from the model's distribution until every sentence has ended.

    softmax(logits / temperature), restricted to the `top_k` likeliest tokens (Fan et al. 2018,
    section 5.1), then to the smallest set of them with total probability `top_p` (Holtzman et al.
    2020, section 3.1), and renormalized. Random numbers depend only on `seed` (Gumbel-max trick):
    the same in eager mode, in a graph and in another process, but different under XLA.

    Args:
        step, state, batch_size, start_id, end_id, max_length, limits, min_length, no_repeat_ngram,
            resize, jit_compile, pad_id, prompt_lengths, token_rules, is_complete: see
            `greedy_decode`. Each place in the batch has its own random numbers; a result does not
            depend on the other sentences.
        temperature: float above 0, or scalar tensor; values below 1 make likely tokens likelier.
            For the limit 0, use `greedy_decode`.
        top_k: None, or int from 1 to V, or scalar int32 tensor of at least 1.
        top_p: None, or float above 0 and at most 1, or scalar tensor.
        seed: int or scalar int32 tensor.

    Returns:
        int32 tensor (B, L), token ids without the end token, padding after the end.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: See `greedy_decode`.

    Example:
        >>> def either(tokens, state):
        ...     return tf.math.log([[0.0, 0.0, 0.5, 0.5]]), state
        >>> sample_decode(either, (), 1, start_id=1, end_id=3, max_length=4, seed=1).shape
        TensorShape([1, 4])
    """
    choose = drawing(batch_size, seed, temperature, top_k, top_p)
    others = (no_repeat_ngram, pad_id, prompt_lengths, token_rules)
    rules = DecodingRules(start_id, end_id, max_length, limits, min_length, *others)
    candidates, others = candidates_of(top_k), (resize, jit_compile, is_complete)
    return _decode_tokens(choose, candidates, step, state, batch_size, rules, *others)


def candidates_of(top_k):
    """The number of candidates from which `drawing` chooses, None for all."""
    return None if tf.is_tensor(top_k) else top_k


def drawing(batch_size, seed=0, temperature=1.0, top_k=None, top_p=None):
    """The choice of `sample_decode`."""
    check_range("temperature", temperature, 0.0, above=True)
    check_range("top_k", top_k, 1)
    check_range("top_p", top_p, 0.0, 1.0, above=True)
    check_range("seed", seed, -(2**31), 2**31 - 1)  # one number, not a pair as in TensorFlow
    rows = tf.range(batch_size)  # in XLA's program, its size is a constant

    def choose(logits, ids, position, row):
        if tf.is_tensor(top_k):
            logits = tf.where(tf.range(logits.shape[-1]) < top_k, logits, IMPOSSIBLE)
        else:
            check_range("top_k", top_k, 1, logits.shape[-1])  # there are no more than V
        logits = logits / temperature
        if top_p is not None:
            logits = _nucleus(logits, top_p)
        # For all sentences, so that the numbers of one do not depend on which others are open.
        shape, seeds = (tf.size(rows), logits.shape[-1]), tf.stack([seed, position])
        uniform = tf.gather(tf.random.stateless_uniform(shape, seeds, minval=_TINY), row)
        drawn = tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), axis=-1)
        return tf.gather(ids, drawn, batch_dims=1)

    return choose


_TINY = 1.1754944e-38  # the smallest normal float32, since log(0) is infinite


def _nucleus(logits, share):
    """Keep the smallest set of candidates, (B, C) with the best first, with this total share."""
    probabilities = tf.nn.softmax(logits)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    # A sum of all candidates but the last may be rounded to 1.
    return tf.where((before < share) | (share >= 1), logits, IMPOSSIBLE)
