"""Reading a `tokenizer.json`, with a check that it holds the pipeline of this package."""

import json
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.tokenizers.pipeline import (
    DECODER,
    NORMALIZER,
    PRE_TOKENIZER,
    SPECIAL_TOKENS,
    byte_alphabet,
)

_MODEL_SETTINGS = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


@dataclass(frozen=True)
class TokenizerFile:
    """What a `tokenizer.json` holds once its pipeline is known to be the supported one.

    Args:
        vocabulary: tuple of V strings, the tokens in the order of their ids. Ids 0, 1 and 2 are
            `<pad>`, `<s>` and `</s>`; the others are written in the byte alphabet.
        merges: tuple of `(left_id, right_id, merged_id)`, best rank first.

    Example:
        >>> TokenizerFile.read("no-such-file.json")
        Traceback (most recent call last):
        FileNotFoundError: path: expected a tokenizer.json, but there is no file no-such-file.json
    """

    vocabulary: tuple
    merges: tuple

    @classmethod
    def read(cls, path):
        """Reads and checks a file, using the standard library only.

        Args:
            path: string or path of a `tokenizer.json` written by `BPETokenizer.save`.

        Returns:
            A `TokenizerFile`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not JSON, or a part of it (the part is named) is not what this
                package writes.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"path: expected a tokenizer.json, but there is no file {path}")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"path: expected a tokenizer.json, but {path} is not JSON ({error}); "
                "write one with BPETokenizer.save"
            ) from error
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise ValueError(
                f"path: expected a tokenizer.json with a part 'model', but {path} has none; "
                "write one with BPETokenizer.save"
            )
        _check_pipeline(content, path)
        vocabulary = _read_vocabulary(content["model"].get("vocab"), path)
        return cls(vocabulary, _read_merges(content["model"].get("merges"), vocabulary, path))


def _check_pipeline(content, path):
    added = [(t.get("id"), t.get("content")) for t in content.get("added_tokens") or []]
    settings = {k: v for k, v in content["model"].items() if k not in ("vocab", "merges")}
    parts = [
        ("normalizer", NORMALIZER, content.get("normalizer")),
        ("pre_tokenizer", PRE_TOKENIZER, content.get("pre_tokenizer")),
        ("decoder", DECODER, content.get("decoder")),
        ("model", _MODEL_SETTINGS, settings),
        ("added_tokens", list(enumerate(SPECIAL_TOKENS)), added),
        ("post_processor", None, content.get("post_processor")),
        ("truncation", None, content.get("truncation")),
        ("padding", None, content.get("padding")),
    ]
    for part, expected, received in parts:
        if received != expected:
            raise _unsupported(part, expected, received, path)


def _read_vocabulary(vocab, path):
    if not isinstance(vocab, dict) or sorted(vocab.values()) != list(range(len(vocab))):
        raise _unsupported("model.vocab", "tokens with ids 0, 1, 2, ...", "other ids", path)
    vocabulary = tuple(sorted(vocab, key=vocab.get))
    if vocabulary[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
        raise _unsupported("model.vocab", SPECIAL_TOKENS, vocabulary[: len(SPECIAL_TOKENS)], path)
    missing = [byte for byte, letter in enumerate(byte_alphabet()) if letter not in vocab]
    if missing:
        raise _unsupported("model.vocab", "all 256 bytes", f"none for bytes {missing}", path)
    foreign = set("".join(vocabulary[len(SPECIAL_TOKENS) :])).difference(byte_alphabet())
    if foreign:
        raise _unsupported("model.vocab", "byte letters", f"also {sorted(foreign)}", path)
    return vocabulary


def _read_merges(merges, vocabulary, path):
    ids = {token: number for number, token in enumerate(vocabulary)}
    triples = []
    seen = set()
    for rank, merge in enumerate(merges or []):
        # Versions of the format before 2024 write a merge as one string with a space.
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        triple = ids.get(left), ids.get(right), ids.get(left + right)
        if None in triple or min(triple) < len(SPECIAL_TOKENS) or (left, right) in seen:
            raise _unsupported(
                "model.merges",
                "pairs of tokens, each pair once, whose union is in the vocabulary",
                f"{merge!r} at rank {rank}",
                path,
            )
        seen.add((left, right))
        triples.append(triple)
    return tuple(triples)


def _unsupported(part, expected, received, path):
    return ValueError(
        f"path: the part {part!r} of {path} is not supported: expected {expected!r}, "
        f"received {received!r}; use a file written by BPETokenizer.save"
    )
