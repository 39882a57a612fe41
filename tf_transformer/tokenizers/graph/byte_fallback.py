"""Tokens for single bytes, which write what a vocabulary of characters lacks."""

import numpy as np

from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


def ids_of_bytes(vocabulary):
    """Finds the tokens `<0x00>` to `<0xFF>`.

    Args:
        vocabulary: dict of token -> id, or tuple of tokens in the order of their ids.

    Returns:
        int32 array `[256]`, or None if there is no such token: then nothing is written in bytes.

    Raises:
        ValueError: there are some, but not all: then the reference writes some characters only.

    Example:
        >>> tokens = [f"<0x{byte:02X}>" for byte in range(256)]
        >>> int(ids_of_bytes(["<unk>", *tokens])[255])
        256
    """
    if not isinstance(vocabulary, dict):
        vocabulary = {token: number for number, token in enumerate(vocabulary)}
    ids = [vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]
    if not any(number is not None for number in ids):
        return None
    if None in ids:
        missing = [f"<0x{byte:02X}>" for byte, number in enumerate(ids) if number is None]
        raise UnsupportedPart.of(
            "model.byte_fallback", "a token for each byte", f"no {missing[:5]}"
        )
    return np.array(ids, np.int32)
