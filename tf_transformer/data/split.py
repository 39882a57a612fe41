"""Splits of pairs and documents into training, validation and test sets without leaks."""

import hashlib
import unicodedata
from dataclasses import dataclass

from tf_transformer.errors import ArgumentError


@dataclass(frozen=True)
class Split:
    """Three lists of `(source, target)` pairs that share no sentence.

    Args:
        train, validation, test: lists of pairs for training, choosing a model and final results.

    Example:
        >>> Split(train=[("a", "b")], validation=[], test=[]).train
        [('a', 'b')]
    """

    train: list
    validation: list
    test: list


def split_pairs(pairs, test_share=0.04, validation_share=0.02):
    """Return a `Split` of pairs in which no sentence, on either side, is in two of the sets.

    Pairs that share a sentence, directly or through other pairs, form a group; each group goes as a
    whole to one set, chosen by a hash of its text. Sentences that differ only in case, width
    (Unicode NFKC) or whitespace count as equal. The result depends only on the set of pairs, not
    on a seed, the order of the pairs, or which language is the source. Each list keeps their order.

    Args:
        pairs: iterable of `(source, target)` pairs of strings.
        test_share, validation_share: floats in [0, 1), the shares of the groups for these sets.

    Raises:
        ValueError: If a share is negative, or the shares leave nothing for training.

    Example:
        >>> pairs = [(f"a {n}", f"b {n}") for n in range(1000)] + [("a 7", "b seven")]
        >>> split = split_pairs(pairs)
        >>> len(split.train), len(split.validation), len(split.test)
        (940, 22, 39)
    """
    if test_share < 0 or validation_share < 0 or test_share + validation_share >= 1:
        expected = "two shares of at least 0 with a sum below 1"
        got, remedy = f"{test_share} and {validation_share}", "The defaults are 0.04 and 0.02."
        raise ArgumentError("test_share, validation_share", expected, got, remedy)
    pairs = list(pairs)
    split = Split(train=[], validation=[], test=[])
    for pair, group in zip(pairs, _group_names(pairs), strict=True):
        draw = uniform(group)
        if draw < test_share:
            split.test.append(pair)
        elif draw < test_share + validation_share:
            split.validation.append(pair)
        else:
            split.train.append(pair)
    return split


def split_with_validation(pairs, validation):
    """Return a `Split` of pairs into training and test sets, given a validation set.

    Like `split_pairs`, but pairs that share a sentence with the validation set are left out.

    Args:
        pairs, validation: lists of `(source, target)` pairs of strings.

    Example:
        >>> split = split_with_validation([("a", "b"), ("c", "d")], [("A", "another b")])
        >>> split.train, split.validation
        ([('c', 'd')], [('A', 'another b')])
    """
    split = split_pairs(pairs, validation_share=0.0)
    train, test = (pairs_without(part, validation) for part in (split.train, split.test))
    return Split(train=train, validation=list(validation), test=test)


def pairs_without(pairs, held_out):
    """Return the list of pairs that share no sentence, on either side, with a held-out set.

    For pairs that join a training set later, such as a teacher's translations. Case, width and
    whitespace are ignored, as in `split_pairs`.

    Args:
        pairs, held_out: iterables of `(source, target)` pairs of strings.

    Example:
        >>> held_out = [("Run!", "跑！")]
        >>> pairs_without([("Hi.", "嗨。"), ("run!", "快跑！"), ("Jog!", "跑!")], held_out)
        [('Hi.', '嗨。')]
    """
    sentences = {comparable(text) for pair in held_out for text in pair}
    return [pair for pair in pairs if sentences.isdisjoint(map(comparable, pair))]


def split_documents(documents, validation_share):
    """Split documents into lists `(train, validation)` that share no document, in their order.

    The set of a document depends only on its text, without case, width and whitespace.

    Args:
        documents: iterable of lists of strings, the sentences of each document.
        validation_share: float in (0, 1), the share of the documents that goes to validation.

    Raises:
        ValueError: If the share is outside (0, 1), or a set is empty for lack of documents.

    Example:
        >>> train, validation = split_documents([[f"Text {n}."] for n in range(100)], 0.1)
        >>> len(train), len(validation)
        (91, 9)
    """
    if not 0 < validation_share < 1:
        raise ArgumentError("validation_share", "0 < share < 1", validation_share)
    sets = ([], [])
    for document in documents:
        sets[uniform(comparable(" ".join(document))) < validation_share].append(document)
    if not all(sets):
        got, remedy = f"{len(sets[0])} and {len(sets[1])} of them", "A blank line ends a document."
        raise ArgumentError("documents", "enough for training and validation", got, remedy)
    return sets


def group_references(pairs):
    """Collect all translations of each source, as multi-reference BLEU needs them.

    Args:
        pairs: iterable of `(source, target)` pairs of strings.

    Returns:
        `(sources, references)`: the list of distinct sources in order of first appearance, and
        for each the list of its distinct targets.

    Example:
        >>> group_references([("Hi.", "嗨。"), ("Run.", "跑。"), ("Hi.", "你好。")])
        (['Hi.', 'Run.'], [['嗨。', '你好。'], ['跑。']])
    """
    # Dicts as sets that keep the order.
    targets_of = {}
    for source, target in pairs:
        targets_of.setdefault(source, {})[target] = None
    return list(targets_of), [list(targets) for targets in targets_of.values()]


def _group_names(pairs):
    """Return the smallest sentence of each pair's group, found by union-find."""
    # Of both languages, so that no leak is missed and the groups are the same in both directions.
    parent = {}

    def find(sentence):
        while parent[sentence] != sentence:
            parent[sentence] = parent[parent[sentence]]  # halve the path for the next search
            sentence = parent[sentence]
        return sentence

    keys = [(comparable(source), comparable(target)) for source, target in pairs]
    for source, target in keys:
        roots = [find(parent.setdefault(side, side)) for side in (source, target)]
        # The smaller sentence stays the root, so the root names its group in any order.
        parent[max(roots)] = min(roots)
    return [find(source) for source, _ in keys]


def comparable(sentence):
    """Map sentences that count as equal to the same text: without case, width and extra spaces."""
    # Case folding can undo NFKC (and vice versa), so normalize both before and after.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold())
    return " ".join(folded.split())


def uniform(name):
    """Map a text to a number in [0, 1) that, unlike `hash`, is the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:6], "big") / 2**48
