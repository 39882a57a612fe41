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


def score(model, sentence, length_penalty):
    return log_p(model, sentence) / ((5 + len(sentence)) / 6) ** length_penalty


def may_follow(tokens, token, *, end, min_length=0, no_repeat_ngram=0):
    if token == 0 or (token == end and len(tokens) < min_length):
        return False
    n = no_repeat_ngram
    whole = (*tokens, token)
    return not n or whole[-n:] not in {whole[i : i + n] for i in range(len(whole) - n)}


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


def beam_search(model, vocabulary, limit, length_penalty, beams, count, *, end, **rules):
    """Return [(score, sentence)] by the definition in `tf_transformer.beam_search`."""
    open_beams, finished = [(0.0, ())], []
    for length in range(1, limit + 1):
        extensions = [
            (so_far + following[token], (*tokens, token))
            for so_far, tokens in open_beams
            for following in [log_probabilities(model(tokens))]
            for token in range(vocabulary)
            if may_follow(tokens, token, end=end, **rules)
        ]
        extensions = sorted(extensions, reverse=True)[: 2 * beams]
        divisor = ((5 + length) / 6) ** length_penalty
        finished += [
            (value / divisor, tokens)
            for value, tokens in extensions[:beams]
            if tokens[-1] == end or length == limit
        ]
        finished = sorted(finished, reverse=True)[:beams]
        open_beams = [each for each in extensions if each[1][-1] != end][:beams]
        if not open_beams or len(finished) == beams == 1:
            break
        reachable = open_beams[0][0] / ((5 + limit) / 6) ** length_penalty
        if len(finished) >= count and reachable <= finished[count - 1][0]:
            break
    return finished[:count]
