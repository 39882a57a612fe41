"""Tokens as texts for figures.

Axes: T tokens.
"""


def token_labels(tokenizer, ids):
    """The text of each token, without the space before a word.

    Args:
        tokenizer: `GraphTokenizer`, or the one inside a loaded SavedModel.
        ids: int32 (T,).

    Returns:
        list of T str. Special tokens have their name, for example "[CLS]", or "" if the tokenizer
        does not know it; a space is "␣"; a part of a character is its bytes in hexadecimal.

    Example:
        >>> import tempfile
        >>> from tf_transformer import BPETokenizer, GraphBPE
        >>> path = tempfile.mkdtemp() + "/tokenizer.json"
        >>> BPETokenizer.train(["hello world"] * 9, vocab_size=300).save(path)
        >>> token_labels(GraphBPE.from_file(path), tf.constant([4, 2]))
        ['"', '</s>']
    """
    names = {number: name for name, number in getattr(tokenizer, "special_tokens", {}).items()}
    pieces = tokenizer.pieces(ids).numpy()
    return [names.get(n, _label(piece)) for n, piece in zip(ids.numpy(), pieces, strict=True)]


def _label(piece):
    try:
        return piece.decode("utf-8").strip() or "\N{OPEN BOX}"
    except UnicodeDecodeError:
        return piece.hex()
