"""Beam search and sampling.

Axes: B batch, K beams, R = B * K rows (row b * K + k is beam k of sentence b), L maximum length, V
vocabulary, C candidates, n sentences returned.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check_choice
from tf_transformer.functional.tensors import check_range
from tf_transformer.generation.decoding import (
    DecodingRules,
    best_allowed,
    decode_loop,
    decode_tokens,
    extension,
    gather_rows,
    refuse_unusable,
)
from tf_transformer.generation.rules import IMPOSSIBLE


def beam_search(
    step,
    state,
    batch_size,
    *,
    beam_size,
    start_id,
    end_id,
    max_length,
    limits=None,
    length_penalty=0.6,
    length_divisor="wu",
    early_stopping="never",
    n_best=1,
    min_length=0,
    no_repeat_ngram=0,
    reorder=gather_rows,
    resize=None,
    jit_compile=False,
    pad_id=0,
    prompt_lengths=0,
    prefix=None,
    token_rules=None,
):
    """Keep the K likeliest prefixes until no open one can become the best.

    score(y) = log p(y) / ((5 + |y|) / 6)^a: Wu et al. 2016, "Google's Neural Machine Translation
    System", section 7, equation 14; |y| counts the end token. Each step takes the 2 K likeliest
    extensions of the open beams. If one of the first K ends or reaches the limit, its score is
    final; the K best such sentences are kept, and the K likeliest others stay open. A sentence is
    done when its n-th best score is at least what the likeliest open beam could still reach, with
    the divisor at the length limit; a single beam when it ends, which is greedy decoding. If there
    are m > 1 end tokens, a step takes (1 + m) K extensions.

    Args:
        step: function `(tokens, state) -> (logits, state)`: tokens (R,) int32, logits (R, V).
        state: the first state for `step`, with R rows, see `repeat_rows`; or a function without
            arguments that returns it, which `jit_compile` also compiles.
        batch_size: int or scalar int32 tensor, B.
        beam_size: int, K; the search is exhaustive if K is the number of possible sentences.
        start_id, end_id, max_length, limits, min_length, no_repeat_ngram, resize, jit_compile,
            pad_id, prompt_lengths, prefix, token_rules: see `greedy_decode`. A sentence that is cut
            at its limit is ranked by its score so far; no end token is added or counted. |y| does
            not count `prompt_lengths`.
        length_penalty: float a >= 0; 0 compares probabilities, which favors short sentences.
        length_divisor: "wu" as above, or "length", |y|^a with any a, as in transformers.
        early_stopping: "never", as above: no other sentence could be better. Otherwise, a sentence
            is done as soon as it has K finished ones (True), or when the worst of these is at least
            the likeliest open beam's score at its present length (False), as in transformers.
        n_best: int, 1 to K, the size of the n-best list of each source.
        reorder: function `(state, rows) -> state`: row r continues from row `rows[r]`, always of
            the same sentence. By default, every tensor except scalars is gathered.

    Returns:
        `(ids, scores)`: int32 tensor (B, n, L), token ids without the end token, padding after the
        end; float32 tensor (B, n), the best first; -inf where there are fewer than n sentences.
        Unlike in `greedy_decode`, a prefix that no token may follow is dropped.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: See `greedy_decode`; or if, with the default
            `reorder`, the state does not have a row for each beam.

    Example:
        >>> def step(tokens, state):
        ...     return tf.math.log([[0.0, 0.0, 0.5, 0.4, 0.1]] * 2), state
        >>> ids, scores = beam_search(
        ...     step, (), 1, beam_size=2, start_id=1, end_id=4, max_length=2, n_best=2
        ... )
        >>> ids.numpy().tolist()
        [[[2, 2], [2, 3]]]
    """
    check_range("beam_size", beam_size, 1)
    check_choice("length_divisor", length_divisor, ("wu", "length"))
    check_range("length_penalty", length_penalty, 0.0 if length_divisor == "wu" else IMPOSSIBLE)
    check_choice("early_stopping", early_stopping, (False, True, "never"))
    check_range("n_best", n_best, 1, beam_size)
    others = (no_repeat_ngram, pad_id, prompt_lengths, prefix, token_rules)
    rules = DecodingRules(start_id, end_id, max_length, limits, min_length, *others)
    num_candidates = beam_size * (1 + max(1, len(rules.end_ids)))
    if reorder is gather_rows and not callable(state) and not tf.is_tensor(batch_size):
        _check_rows(state, batch_size * beam_size)

    def extend(position, state, sentences):
        done, given = sentences["done"], {name: sentences[name] for name in rules.OF_SENTENCES}
        limits = tf.expand_dims(given["limits"], 1)  # (B, 1)
        before = tf.expand_dims(given["prompt_lengths"], 1)
        logits, state = step(tf.reshape(sentences["tokens"], (-1,)), state)
        logits = tf.cast(logits, tf.float32)
        ids, log_p = sentences["beams"]
        length = tf.shape(ids)[-1]
        total = tf.reshape(tf.reduce_logsumexp(logits, axis=-1), tf.shape(log_p))  # (B, K)
        unusable = ~tf.math.is_finite(total) & (log_p > IMPOSSIBLE) & ~tf.expand_dims(done, 1)

        offsets = tf.where(log_p > IMPOSSIBLE, log_p - total, IMPOSSIBLE)
        history, total = tf.reshape(ids, (-1, length)), tf.reshape(total, (-1, 1))
        log_p, parents, tokens = best_allowed(
            logits, offsets, num_candidates, history, position, rules, given, total
        )  # (B, C)
        ends = rules.is_end(tokens) & (position >= before)
        ids = tf.gather(ids, parents, batch_dims=1)  # (B, C, L)
        written = tokens if pad_id is None else tf.where(ends, pad_id, tokens)
        ids = tf.where(tf.equal(tf.range(length), position), tf.expand_dims(written, -1), ids)

        last = position + 1 >= limits  # (B, 1)
        finishing = (ends | last) & ~tf.expand_dims(done, 1)
        divisor = divisor_of(position + 1 - before)
        scores = tf.where(finishing, log_p, IMPOSSIBLE) / divisor
        new = ids[:, :beam_size], scores[:, :beam_size]
        finished = tf.nest.map_structure(lambda *x: tf.concat(x, 1), sentences["output"], new)
        finished = _first(finished, beam_size)

        log_p = tf.where(ends, IMPOSSIBLE, log_p)
        tokens, parents, *beams = _first((tokens, parents, ids, log_p), beam_size)
        first_rows = tf.expand_dims(tf.range(tf.shape(done)[0]) * beam_size, 1)  # (B, 1)
        state = reorder(state, tf.reshape(first_rows + parents, (-1,)))
        _, scores = finished  # (B, K)
        # Now, or at the limit if the divisor grows.
        reachable = beams[-1][:, :1] / divisor
        if early_stopping == "never":
            reachable = tf.maximum(reachable, beams[-1][:, :1] / divisor_of(limits - before))
            enough = reachable <= scores[:, n_best - 1 : n_best]
        else:
            enough = reachable <= scores[:, -1:]
            if early_stopping:
                enough |= scores[:, -1:] > IMPOSSIBLE
        if beam_size == 1:
            enough |= scores > IMPOSSIBLE
        done |= tf.squeeze(last | enough, 1)
        sentences = {
            "done": done,
            **given,
            "tokens": tf.where(tf.expand_dims(done, 1), rules.filler, tokens),
            "beams": tuple(beams),
            "output": finished,
        }
        return state, sentences, tf.reduce_any(unusable)

    def divisor_of(length):
        length = tf.cast(tf.maximum(length, 1), tf.float32)  # within a prompt, there is none
        return ((5.0 + length) / 6.0 if length_divisor == "wu" else length) ** length_penalty

    first_position, begun, sentences = rules.begin(batch_size)
    shape = batch_size, beam_size
    begun = tf.repeat(tf.expand_dims(begun, 1), beam_size, axis=1)  # (B, K, L)
    only_first = tf.where(tf.range(beam_size) == 0, 0.0, IMPOSSIBLE)
    ended = tf.where(tf.expand_dims(sentences["done"], 1), only_first, IMPOSSIBLE)  # (B, K)
    sentences |= {
        "tokens": tf.broadcast_to(tf.expand_dims(sentences["tokens"], 1), shape),
        "beams": (begun, tf.broadcast_to(only_first, shape)),
        "output": (tf.where(tf.expand_dims(ended > IMPOSSIBLE, 2), begun, rules.filler), ended),
    }
    (ids, scores), failed_step = decode_loop(
        extend, state, sentences, resize, jit_compile, first_position
    )
    refuse_unusable(failed_step)
    return ids[:, :n_best], scores[:, :n_best]


def _check_rows(state, rows):
    """Check that a state has one row for each beam, as far as its shapes are known."""
    for tensor in map(tf.convert_to_tensor, tf.nest.flatten(state)):
        if tensor.shape.rank and not tensor.shape[:1].is_compatible_with([rows]):
            expected = f"a row for each beam of each sentence, {rows}"
            remedy = "Use repeat_rows(state, beam_size)."
            raise ArgumentError("state", expected, f"shape {tensor.shape}", remedy)


def _first(tensors, count):
    """The entries with the largest values of the last tensor: each (B, C, ...) to (B, K, ...)."""
    values, order = tf.math.top_k(tensors[-1], count)
    return *(tf.gather(tensor, order, batch_dims=1) for tensor in tensors[:-1]), values


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
    prefix=None,
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
            resize, jit_compile, pad_id, prompt_lengths, prefix, token_rules, is_complete: see
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
    choice = drawing(batch_size, seed, temperature, top_k, top_p)
    others = (no_repeat_ngram, pad_id, prompt_lengths, prefix, token_rules)
    rules = DecodingRules(start_id, end_id, max_length, limits, min_length, *others)
    extend = extension(*choice, step, rules, is_complete)
    return decode_tokens(extend, state, batch_size, rules, resize, jit_compile)


def drawing(batch_size, seed=0, temperature=1.0, top_k=None, top_p=None):
    """The choice of `sample_decode`, and the number of its candidates, None for all."""
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

    return choose, None if tf.is_tensor(top_k) else top_k


_TINY = 1.1754944e-38  # the smallest normal float32, since log(0) is infinite


def _nucleus(logits, share):
    """Keep the smallest set of candidates, (B, C) with the best first, with this total share."""
    probabilities = tf.nn.softmax(logits)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    # A sum of all candidates but the last may be rounded to 1.
    return tf.where((before < share) | (share >= 1), logits, IMPOSSIBLE)
