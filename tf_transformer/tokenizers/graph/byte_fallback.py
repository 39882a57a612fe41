"""Tokens for single bytes, used for characters that the vocabulary lacks."""

import numpy as np

from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


def ids_of_bytes(vocabulary):
    """Find the tokens `<0x00>` to `<0xFF>`."""
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
