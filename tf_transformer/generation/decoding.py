"""The loop of all decoding, the choice of the likeliest allowed tokens, and greedy decoding.

Axes: B batch, K rows of a sentence, R = B * K rows, V vocabulary, C candidates, L maximum length.
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.functional.tensors import asserted, check_range
from tf_transformer.generation.rules import IMPOSSIBLE, TokenRules, ruled_logits


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
    prefix=None,
    token_rules=None,
    is_complete=None,
):
    """Choose the likeliest token at each step until every sentence has ended.

    The padding is never chosen: it marks the end of a sentence.

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
        prefix: None, or int32 tensor (B, P), the first tokens of the sentences, of which `state`
            has read all but the last, see `LanguageModel.prefill`; decoding starts after them.
        token_rules: None, or dict with any of these rules, those of transformers:
            `forced_first`, `forced_last`: int, the first token if there is no prompt, and the token
            at the limit; their log probability is 0. `forced_first` may be an int32 tensor (B,), -1
            for none.
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
        ValueError: If a number is out of range, or `prefix` has another shape or length;
            tf.errors.InvalidArgumentError for a tensor.
        tf.errors.InvalidArgumentError: If a row of logits has NaN, infinity or no possible token.
            XLA cannot raise errors; decoding stops there.

    Example:
        >>> def count_up(tokens, state):
        ...     return tf.one_hot(tokens + 1, 6), state
        >>> greedy_decode(count_up, (), 1, start_id=1, end_id=4, max_length=5).numpy().tolist()
        [[2, 3, 0, 0, 0]]
    """
    others = (no_repeat_ngram, pad_id, prompt_lengths, prefix, token_rules)
    rules = DecodingRules(start_id, end_id, max_length, limits, min_length, *others)
    extend = extension(likeliest, 1, step, rules, is_complete)
    return decode_tokens(extend, state, batch_size, rules, resize, jit_compile)


def unusable(logits):
    """Rows from which no token can be chosen: NaN, infinity, or no possible token."""
    # A sum propagates NaN; a maximum may not.
    not_a_number = tf.math.is_nan(tf.reduce_sum(logits, axis=-1))
    return not_a_number | ~tf.math.is_finite(tf.reduce_max(logits, axis=-1))


def refuse_unusable(failed_step):
    """Report the step, or -1, at which logits were `unusable`; does nothing under XLA."""
    message = "logits: expected numbers, got NaN, infinity or no possible token. "
    message += "Check the weights: diverged training produces such logits. Found at step (from 0):"
    tf.debugging.Assert(failed_step < 0, [message, failed_step])


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
        rank, remedy = tensor.shape.rank, "Set it with tf.ensure_shape."
        check(rank is not None, "state", "tensors of known rank", tensor, remedy)
        return function(tensor) if rank else tensor

    return tf.nest.map_structure(of_one, state)


# A step with fewer sentences takes about the same time.
_SMALLEST = 8
_FIRST_ROOM = 16


def decode_loop(extend, state, sentences, resize=None, jit_compile=False, position=0):
    """Return the `output` of all sentences once they are done, and the step that failed or -1."""
    # `extend` is `(position, state, sentences) -> (state, sentences, whether the step failed)`;
    # `sentences` a dict of nests of tensors (B, ...): `done`, bool (B,), `output`, and other inputs
    # of `extend`. Finished ones do not change. `position` is the first. For the other arguments
    # see `greedy_decode`.
    #
    # With `resize`, an outer loop keeps the state small: whenever half of the sentences are done,
    # they are removed and the batch is halved; the caches start with room for 16 tokens, which
    # doubles when full. XLA compiles only the inner loop, once for every size; without `resize`,
    # the first state and the loop as one program, which starts faster.

    first_position = tf.convert_to_tensor(position)
    if tf.is_tensor(position):  # after a prefix
        for part in state if isinstance(state, list) else [state]:  # of an ensemble
            if isinstance(part, dict) and "lineage" in part:  # of a model of this library
                error = ("prefix", "as many tokens as the state has read", "more or fewer")
                remedy = "Pass the two results of prefill."
                is_there = tf.equal(part["position"], position)
                first_position = asserted(first_position, is_there, *error, remedy)

    def goes_on(position, failed_step, room, state, sentences):
        done = sentences["done"]
        is_over = _has_few_open(done) if resize else tf.reduce_all(done)
        return ~is_over & (position < room) & (failed_step < 0)

    def extend_all(position, failed_step, room, state, sentences):
        state, sentences, failed = extend(position, state, sentences)
        return position + 1, tf.where(failed, position, failed_step), room, state, sentences

    def run(*variables):
        return tf.while_loop(goes_on, extend_all, variables)

    def run_to_the_end():
        first_state = state() if callable(state) else state
        variables = first_position, tf.constant(-1), tf.int32.max, first_state, sentences
        _, failed_step, _, _, ended = run(*variables)
        return ended["output"], failed_step

    if resize is None:
        if jit_compile:
            run_to_the_end = tf.function(run_to_the_end, jit_compile=True, autograph=False)
        return run_to_the_end()

    state = state() if callable(state) else state
    run = tf.function(run, jit_compile=jit_compile, autograph=False)

    def unfinished(output, places, position, failed_step, room, state, sentences):
        return ~tf.reduce_all(sentences["done"]) & (failed_step < 0)

    def resize_and_run(output, places, position, failed_step, room, state, sentences):
        # All open sentences, padded with finished ones to half of the batch.
        done = sentences["done"]
        count = tf.where(_has_few_open(done), tf.size(done) // 2, tf.size(done))
        kept = tf.argsort(tf.cast(done, tf.int32), stable=True)[:count]
        places, sentences = gather_rows((places, sentences), kept)
        room = tf.where(position < room, room, 2 * room)
        variables = position, failed_step, room, resize(state, kept, room), sentences
        position, failed_step, room, state, sentences = run(*variables)

        def updated(whole, part):
            return tf.tensor_scatter_nd_update(whole, places[:, tf.newaxis], part)

        output = tf.nest.map_structure(updated, output, sentences["output"])
        return output, places, position, failed_step, room, state, sentences

    places, room = tf.range(tf.size(sentences["done"])), tf.maximum(_FIRST_ROOM, first_position + 1)
    variables = sentences["output"], places, first_position, tf.constant(-1), room, state, sentences
    *others, of_sentences = tf.nest.map_structure(_of_any_batch, (*variables[:5], sentences))
    shapes = (*others, tf.nest.map_structure(any_size, state), of_sentences)
    output, _, _, failed_step, *_ = tf.while_loop(unfinished, resize_and_run, variables, shapes)
    return output, failed_step


def _has_few_open(done):
    """Whether at most half of the sentences are open, or none of a batch too small to halve."""
    few = tf.where(tf.size(done) > _SMALLEST, tf.size(done) // 2, 0)
    return tf.reduce_sum(tf.cast(~done, tf.int32)) <= few


def _of_any_batch(x):
    return tf.TensorShape([None, *x.shape[1:]]) if x.shape.rank else x.shape


def any_size(x):
    """The shape of a tensor of which only the rank is known."""
    return tf.TensorShape([None] * x.shape.rank)


def decode_tokens(extend, state, batch_size, rules, resize, jit_compile):
    """Feed back the chosen tokens until every sentence has ended."""
    position, sentences = first_sentences(rules, batch_size)
    output, failed_step = decode_loop(extend, state, sentences, resize, jit_compile, position)
    refuse_unusable(failed_step)
    return output


def first_sentences(rules, batch_size):
    """The first position and sentences of `decode_loop`."""
    position, output, sentences = rules.begin(batch_size)
    return position, {**sentences, "output": output, "row": tf.range(batch_size)}


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


@dataclasses.dataclass(frozen=True)
class DecodingRules:
    """Special tokens, lengths and rules for tokens, shared by all decoding strategies."""

    start_id: Any
    end_id: Any
    max_length: Any
    limits: Any = None
    min_length: Any = 0
    no_repeat_ngram: int = 0
    pad_id: int | None = 0
    prompt_lengths: Any = 0
    prefix: Any = None
    token_rules: dict | None = None
    OF_SENTENCES: ClassVar = ("limits", "start_id", "min_length", "prompt_lengths", "forced_first")

    def __post_init__(self):
        check_range("pad_id", self.pad_id, 0)
        for end_id in self.end_ids:
            check(end_id is not None, "end_id", "an id, or () for none", "None")
            check_range("end_id", end_id, 1 if self.pad_id == 0 else 0)
        expected = f"another id than the end token's, {self.end_id}, or None"
        check(self.pad_id not in self.end_ids, "pad_id", expected, self.pad_id)
        check_range("max_length", self.max_length, 1)
        check_range("min_length", self.min_length, 0)
        check_range("no_repeat_ngram", self.no_repeat_ngram, 0)
        for name in self.token_rules or ():
            check_choice("token_rules", name, TokenRules.__dataclass_fields__)

    @functools.cached_property
    def tokens(self):
        """The `token_rules` as an object."""
        return TokenRules(**(self.token_rules or {}))

    @property
    def change_logits(self):
        """bool, whether there is any rule that a few more candidates do not suffice for."""
        own, is_forced = self.tokens, self.tokens.forced_first is not None
        others = is_forced or own.repetition_penalty != 1 or own.renormalize
        return bool(others or self.no_repeat_ngram or len(own.ids) > len(own.barred))

    @property
    def forced_first(self):
        """The first token of `token_rules`, int or int32 (B,); -1 for none."""
        first = self.tokens.forced_first
        return -1 if first is None else first

    @property
    def end_ids(self):
        """Tuple of int, all end tokens."""
        return tuple(self.end_id) if isinstance(self.end_id, tuple | list) else (self.end_id,)

    @property
    def filler(self):
        """int, what follows the end of a sentence in the output."""
        return (*self.end_ids, 0)[0] if self.pad_id is None else self.pad_id

    def of_sentences(self, batch_size):
        """What the rules say of each sentence, a dict of int32 (B,), `OF_SENTENCES`."""
        limits = tf.fill((batch_size,), self.max_length)
        if self.limits is not None:
            limits = tf.minimum(_checked_each("limits", self.limits, batch_size, 1), limits)

        def of_each(name):
            value = tf.convert_to_tensor(getattr(self, name), tf.int32)
            if value.shape.rank == 0:
                return tf.fill((batch_size,), value)
            return _checked_each(name, value, batch_size, -1 if name == "forced_first" else 0)

        return {"limits": limits, **{name: of_each(name) for name in self.OF_SENTENCES[1:]}}

    def begin(self, batch_size):
        """The first position; the tokens so far, int32 (B, L); `done`, `tokens`, `OF_SENTENCES`."""
        sentences = self.of_sentences(batch_size)
        output = tf.fill((batch_size, self.max_length), self.filler)
        if self.prefix is None:
            no, start = tf.fill((batch_size,), False), sentences["start_id"]
            return 0, output, {"done": no, "tokens": start, **sentences}
        prefix = tf.convert_to_tensor(self.prefix, tf.int32)
        if prefix.shape.rank != 2:
            expected = "the first tokens of each sentence, shape (B, P)"
            raise ArgumentError("prefix", expected, f"shape {prefix.shape}")
        count = tf.shape(prefix)[1]
        fits = (tf.shape(prefix)[0] == batch_size) & (count <= self.max_length)
        error = ("prefix", "a row for each sentence, of at most max_length tokens", "others")
        prefix = asserted(prefix, fits, *error)
        own = tf.range(count) >= tf.expand_dims(sentences["prompt_lengths"], 1)
        ends = self.is_end(prefix) & own
        is_over = tf.cumsum(tf.cast(ends, tf.int32), axis=1, exclusive=self.pad_id is None) > 0
        is_over |= tf.range(count) >= tf.expand_dims(sentences["limits"], 1)
        kept = tf.where(is_over, self.filler, prefix)
        begun = tf.concat([kept, output[:, count:]], axis=1)
        begun.set_shape(output.shape)
        done = tf.reduce_any(ends, axis=1) | (count >= sentences["limits"])
        fed = tf.concat([tf.expand_dims(sentences["start_id"], 1), prefix], axis=1)[:, -1]
        return count, begun, {"done": done, "tokens": fed, **sentences}

    def is_end(self, tokens):
        """Whether tokens are end tokens."""
        return is_among(tokens, self.end_ids)

    def bars(self, tokens, position, min_length):
        """Whether tokens are never chosen: the padding, some, before `min_length` the end."""
        barred = self.is_end(tokens) & (position < min_length)
        never = self.tokens.barred if self.pad_id is None else (*self.tokens.barred, self.pad_id)
        return barred | is_among(tokens, never) if never else barred


def is_among(tokens, ids):
    """Whether each of the tokens, integers, is one of the ids, a tuple of int."""
    return tf.reduce_any(tf.equal(tokens[..., tf.newaxis], tf.constant(ids, tokens.dtype)), axis=-1)


def _checked_each(name, values, batch_size, least):
    """A number for each sentence, int32 (B,), after a check."""
    values = tf.convert_to_tensor(values, tf.int32)
    if values.shape.rank != 1:
        raise ArgumentError(name, "one for each sentence, shape (B,)", f"shape {values.shape}")
    count = tf.size(values)
    message = [f"{name}: expected one for each of", batch_size, "sentences, got", count]
    tf.debugging.Assert(tf.equal(count, batch_size), message)
    check_range(name, values, least)
    return values


def top_sums(values, offsets, count):
    """The largest `values[b * K + k, v] + offsets[b, k]` of each sentence, the first of ties."""
    # As `tf.math.top_k` of (B, K * V), in two steps if that is long: the C entries are in the C
    # blocks with the largest maxima, so only those are sorted. Finding a maximum is much cheaper.
    width, rows = values.shape[-1], offsets.shape[-1]
    batch = tf.shape(offsets)[0]
    # sqrt(K V / C): then finding the C blocks and searching them sort equally many numbers.
    best = math.isqrt(rows * width // count)
    size = width  # if nearly all blocks would be selected
    if best >= 4:
        size = min(range(best, 2 * best), key=lambda size: -width % size)  # the least padding
    blocks = -(-width // size)  # of a row, n
    if width % size:
        values = tf.pad(values, [[0, 0], [0, blocks * size - width]], constant_values=IMPOSSIBLE)
    values = tf.reshape(values, (batch, rows * blocks, size))  # (B, K * n, b)
    offsets = tf.repeat(offsets, blocks, axis=1)  # (B, K * n)
    largest = _plus(tf.reduce_max(values, axis=-1), offsets)
    _, chosen = tf.math.top_k(largest, min(count, rows * blocks))
    chosen = tf.sort(chosen, axis=-1)  # keeps ties in order
    offsets = tf.expand_dims(tf.gather(offsets, chosen, batch_dims=1), -1)
    sums = _plus(tf.gather(values, chosen, batch_dims=1), offsets)  # (B, C, b)
    sums, order = tf.math.top_k(tf.reshape(sums, (batch, -1)), count)
    block = tf.gather(chosen, order // size, batch_dims=1)  # (B, C)
    tokens = block % blocks * size + order % size
    # The padding of a last block is selected only where all remaining sums are -inf.
    return sums, block // blocks, tf.minimum(tokens, width - 1)


def _plus(values, offsets):
    """The sums; -inf wherever the offset is -inf, since XLA ranks NaN above everything."""
    return tf.where(offsets > IMPOSSIBLE, values + offsets, IMPOSSIBLE)


def best_allowed(logits, offsets, count, history, position, rules, sentences, total=0.0):
    """`top_sums` of the allowed tokens, of all with `count=None`: sums, rows and tokens (B, C)."""
    # Never the padding, which marks the end of a sentence; no end token before `min_length` tokens;
    # no repeated n-gram (Paulus et al. 2018, section 2.5). No rule applies within a prompt.
    expected = "a vocabulary of known size from the step function"
    remedy = "Set it with tf.ensure_shape."
    check(logits.shape[-1] is not None, "logits", expected, f"shape {logits.shape}", remedy)
    beams, everything = offsets.shape[-1], offsets.shape[-1] * logits.shape[-1]
    check_range("token_rules", max(rules.tokens.ids, default=0), 0, logits.shape[-1] - 1)
    if rules.change_logits:
        of_rows = {name: tf.expand_dims(tf.repeat(x, beams), 1) for name, x in sentences.items()}
        logits = ruled_logits(logits, history, position, rules, of_rows, total)
    of_sentences = {name: tf.expand_dims(x, 1) for name, x in sentences.items()}
    count = min(count or everything, everything)
    # A few extra candidates are cheaper than masking columns of all logits.
    may_bar_ends = tf.is_tensor(rules.min_length) or rules.min_length > 0
    others = 1 + len(rules.tokens.barred) + may_bar_ends * len(rules.end_ids)
    more = min(count + beams * others, everything)
    sums, rows, tokens = top_sums(logits, offsets, more)
    own = position >= of_sentences["prompt_lengths"]  # (B, 1)
    barred = own & rules.bars(tokens, position, of_sentences["min_length"])
    # NaN, which the loops report, must not rank first.
    sums = tf.where(barred | tf.math.is_nan(sums), IMPOSSIBLE, sums)
    sums, order = tf.math.top_k(sums, count)
    return sums, tf.gather(rows, order, batch_dims=1), tf.gather(tokens, order, batch_dims=1)
