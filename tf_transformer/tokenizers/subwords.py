"""Training the vocabulary of a translator, given the name of a model."""

from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers.bpe import BPETokenizer
from tf_transformer.tokenizers.pipeline import metaspace_pipeline
from tf_transformer.tokenizers.unigram import UnigramTokenizer
from tf_transformer.tokenizers.wordpiece import WordPieceTokenizer

_TRAIN = {
    "bpe": BPETokenizer.train,
    # BERT's own pipeline would lose the case and spaces of a translation.
    "wordpiece": lambda texts, size: WordPieceTokenizer.train(texts, size, metaspace_pipeline()),
    "unigram": UnigramTokenizer.train,
}
SUBWORDS = tuple(_TRAIN)


def train_subwords(kind, texts, vocab_size):
    """Train a vocabulary with which decoding restores the text.

    Args:
        kind: str, one of `SUBWORDS`.
        texts: iterable of strings.
        vocab_size: int, the number of ids.

    Returns:
        `Tokenizer`.

    Raises:
        ValueError: If the kind is unknown; see also `BPETokenizer.train`.

    Example:
        >>> train_subwords("bpe", ["low lower lowest"], 270).encode(["low"])[0] != []
        True
    """
    if kind not in _TRAIN:
        raise ArgumentError("subword", f"one of {', '.join(SUBWORDS)}", f"{kind!r}")
    return _TRAIN[kind](texts, vocab_size)
