"""Models of SentencePiece, and its precompiled character maps."""

import base64
import io

import numpy as np
import sentencepiece
from tokenizers import normalizers


def trained_model(texts, **settings):
    """The bytes of a model for few texts."""
    written = io.BytesIO()
    few = {"vocab_size": 1500, "hard_vocab_limit": settings.get("model_type") == "bpe"}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        minloglevel=2,
        **{"character_coverage": 0.98, **few, **settings},
    )
    return written.getvalue()


_LEAF, _HAS_LEAF = 1 << 31, 1 << 8


def charsmap(rules):
    """Blob of a map from strings to strings: a double array (Aoe 1989), then the results."""
    results, places = bytearray(), {}
    for result in rules.values():
        if result not in places:
            places[result] = len(results)
            results += result.encode() + b"\0"
    root = {}
    for key, result in rules.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = places[result]
    units = np.zeros(1 << 21, np.uint32)
    waiting, size = [(root, 0)], 256
    while waiting:
        node, place = waiting.pop()
        # The children of a node get a block of 256 units of their own, a result alone one unit.
        needed = 1 if node.keys() == {0} else 256
        base = -(-size // needed) * needed
        size = base + needed
        units[place] |= (place ^ base) << 10
        for byte, child in node.items():
            if byte == 0:
                units[place] |= _HAS_LEAF
                units[base] = _LEAF | child
            else:
                units[base ^ byte] = byte
                waiting.append((child, base ^ byte))
    trie = units[: -(-size // 256) * 256].astype("<u4").tobytes()
    return len(trie).to_bytes(4, "little") + trie + bytes(results)


def precompiled_part(rules):
    """The part of a `tokenizer.json`."""
    blob = base64.b64encode(charsmap(rules)).decode()
    return {"type": "Precompiled", "precompiled_charsmap": blob}


def precompiled(rules):
    """The Rust package's normalizer."""
    return normalizers.Precompiled(charsmap(rules))
