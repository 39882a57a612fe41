"""Decoding in plain Python and float64, on models that are plain functions.

A model is a function from a prefix (a tuple of tokens, without the start) to logits (V,). A
sentence is a tuple of tokens, with the end token if it was generated.
"""

import itertools

import numpy as np


def log_probabilities(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def random_model(seed, vocabulary, scale=2.0):
    """Return a model whose logits depend on every previous token."""

    def model(tokens):
        rng = np.random.default_rng([seed, len(tokens), *tokens])
        return (scale * rng.standard_normal(vocabulary)).astype(np.float32)

    return model


def log_p(model, sentence):
    return sum(log_probabilities(model(sentence[:at]))[token] for at, token in enumerate(sentence))


def divisor(length, length_penalty, kind="wu"):
    return {"wu": (5 + length) / 6, "length": length}[kind] ** length_penalty


def score(model, sentence, length_penalty):
    return log_p(model, sentence) / divisor(len(sentence), length_penalty)


def may_follow(
    tokens,
    token,
    *,
    end,
    min_length=0,
    no_repeat_ngram=0,
    bad_words=(),
    suppressed_first=(),
    first=0,
    start=(),
):
    if token == 0 or (token == end and len(tokens) < min_length):
        return False
    n = no_repeat_ngram
    whole = (*start, *tokens, token)
    if any(whole[-len(word) :] == tuple(word) for word in bad_words):
        return False
    if len(tokens) == first and token in suppressed_first:
        return False
    return not n or whole[-n:] not in {whole[i : i + n] for i in range(len(whole) - n)}


def choices(
    model,
    tokens,
    limit,
    *,
    forced_first=None,
    forced_last=None,
    repetition_penalty=1.0,
    renormalize=False,
    **rules,
):
    """The log probability of each token that may follow."""
    if forced_last is not None and len(tokens) + 1 == limit:
        return {forced_last: 0.0}
    if forced_first is not None and not tokens:
        return {forced_first: 0.0}
    values = log_probabilities(model(tokens))
    for token in {*rules.get("start", ()), *tokens}:
        values[token] *= repetition_penalty
    rules["first"] = int(forced_first is not None)
    left = [token for token in range(len(values)) if may_follow(tokens, token, **rules)]
    if renormalize:
        values = values - np.log(sum(np.exp(values[token]) for token in left))
    return {token: values[token] for token in left}


def every_sentence(vocabulary, limit, *, end, **rules):
    """Yield every possible sentence: those that end, and those cut at the limit."""
    for length in range(1, limit + 1):
        for tokens in itertools.product(range(1, vocabulary), repeat=length):
            inside = tokens[:-1]
            if end in inside or (tokens[-1] != end and length < limit):
                continue
            if all(may_follow(tokens[:at], tokens[at], end=end, **rules) for at in range(length)):
                yield tokens


def best_sentences(model, vocabulary, limit, length_penalty, count, *, end, **rules):
    """Return [(score, sentence)], best first, by enumeration."""
    all_of_them = [
        (score(model, sentence, length_penalty), sentence)
        for sentence in every_sentence(vocabulary, limit, end=end, **rules)
    ]
    return sorted(all_of_them, reverse=True)[:count]


def beam_search(
    model,
    vocabulary,
    limit,
    length_penalty,
    beams,
    count,
    *,
    end,
    length_divisor="wu",
    early_stopping="never",
    **rules,
):
    """Return [(score, sentence)] by the definition in `tf_transformer.beam_search`."""
    open_beams, finished = [(0.0, ())], []
    for length in range(1, limit + 1):
        extensions = [
            (so_far + value, (*tokens, token))
            for so_far, tokens in open_beams
            for token, value in choices(model, tokens, limit, end=end, **rules).items()
        ]
        extensions = sorted(extensions, reverse=True)[: 2 * beams]
        now = divisor(length, length_penalty, length_divisor)
        finished += [
            (value / now, tokens)
            for value, tokens in extensions[:beams]
            if tokens[-1] == end or length == limit
        ]
        finished = sorted(finished, reverse=True)[:beams]
        open_beams = [each for each in extensions if each[1][-1] != end][:beams]
        if not open_beams or len(finished) == beams == 1:
            break
        if early_stopping == "never":
            best = max(now, divisor(limit, length_penalty, length_divisor))
            enough = count
        else:
            best, enough = now, beams
        if len(finished) < enough:
            continue
        if early_stopping is True or open_beams[0][0] / best <= finished[enough - 1][0]:
            break
    return finished[:count]
