"""Training texts for BERT pretraining, from documents of token ids."""

from itertools import chain

from tf_transformer.errors import ArgumentError


def sentence_pairs(documents, max_tokens, rng, short_probability=0.1):
    """Split documents into pairs of texts in which the second follows the first or is random.

    Devlin et al. 2019, section 3.1, task 2, and appendix A.2. Sentences are collected up to
    `max_tokens`, in one case of ten up to a random smaller number, and split at a random sentence
    boundary. In half of the cases sentences of another document replace the second part, which is
    then reused for the next pair. Pairs that are too long lose tokens of the longer part, randomly
    at its front or back. A different state of `rng` gives different pairs.

    Args:
        documents: list of lists of lists of int token ids: documents, sentences, tokens; none
            empty. A document of a single sentence is only used as a random second part.
        max_tokens: int, the maximum number of tokens of a pair, at least 2.
        rng: `numpy.random.Generator`.
        short_probability: float in [0, 1], the share of the pairs with a smaller limit.

    Yields:
        `(first, second, label)`: two non-empty lists of ids, and 0 = follows, 1 = random.

    Raises:
        ValueError: If there are fewer than two documents or none has two sentences, or if
            `max_tokens` is below 2.

    Differs from the published code, which assumes long documents. There a sentence without a
    successor always gets label 1; here it gets no pair, so that half of the labels are 0 for any
    documents. There random sentences fill the limit even if the document ends long before it, so
    that the length reveals the label; here they have as many tokens as those they replace.

    Example:
        >>> documents = [[[5], [6, 7]], [[8], [9], [8]]]
        >>> next(sentence_pairs(documents, 8, np.random.default_rng(1)))
        ([5], [6, 7], 0)
    """
    if max_tokens < 2:
        raise ArgumentError("max_tokens", "at least 2, one for each text", max_tokens)
    if len(documents) < 2 or max(map(len, documents)) < 2:
        raise ArgumentError(
            "documents",
            "at least two, and two sentences in one of them",
            (
                f"{len(documents)} documents of at most {max(map(len, documents), default=0)} "
                "sentences"
            ),
            "Single sentences suffice without next sentence prediction.",
        )
    for index, document in enumerate(documents):
        start = 0
        while start < len(document) - 1:
            target = max_tokens
            if rng.random() < short_probability:
                target = rng.integers(2, max_tokens, endpoint=True)
            end = max(_end(document, start, target), start + 2)
            middle = rng.integers(start + 1, end)
            first, second = document[start:middle], document[middle:end]
            label = int(rng.random() < 0.5)
            if label:
                other = rng.integers(len(documents) - 1)
                other = documents[other + (other >= index)]
                size = sum(map(len, second))
                begin = rng.integers(_last_start(other, size), endpoint=True)
                second = other[begin : _end(other, begin, size)]
            start = middle if label else end
            yield *_truncated(_join(first), _join(second), max_tokens, rng), label


def text_blocks(documents, max_tokens):
    """Split documents into texts of whole sentences, for masked language modelling only.

    Liu et al. 2019, "RoBERTa", section 4.2, "DOC-SENTENCES": as many sentences as fit, all from the
    same document. A sentence longer than the limit is split.

    Args:
        documents: same as in `sentence_pairs`.
        max_tokens: int, the maximum number of tokens of a text.

    Yields:
        lists of int token ids; every token occurs once.

    Raises:
        ValueError: If `max_tokens` is below 1.

    Example:
        >>> list(text_blocks([[[5], [6, 7], [8]], [[9, 9, 9, 9]]], 3))
        [[5, 6, 7], [8], [9, 9, 9], [9]]
    """
    if max_tokens < 1:
        raise ArgumentError("max_tokens", "at least 1", max_tokens)
    for document in documents:
        block = []
        for sentence in document:
            if block and len(block) + len(sentence) > max_tokens:
                yield block
                block = []
            block = block + sentence
            while len(block) > max_tokens:
                yield block[:max_tokens]
                block = block[max_tokens:]
        if block:
            yield block


def _end(document, start, target):
    """The end of the sentences from `start` that reach `target` tokens, or of the document."""
    total = 0
    for end in range(start, len(document)):
        total += len(document[end])
        if total >= target:
            return end + 1
    return len(document)


def _last_start(document, target):
    """The last sentence from which at least `target` tokens remain, or the first sentence."""
    return len(document) - _end(document[::-1], 0, target)


def _join(sentences):
    return list(chain.from_iterable(sentences))


def _truncated(first, second, max_tokens, rng):
    # Removing tokens one by one from the longer text, as published, leaves both with half, or the
    # shorter one whole.
    most = min(len(first), max((max_tokens + 1) // 2, max_tokens - len(second)))
    return _cut(first, most, rng), _cut(second, min(len(second), max_tokens - most), rng)


def _cut(text, length, rng):
    front = rng.binomial(len(text) - length, 0.5)
    return text[front : front + length]
