"""BERT's vocabulary, read and written in the formats of its programs."""

import json
from pathlib import Path

from tf_transformer.data.replacing import replacing
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.tokenizers import WordPieceTokenizer
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile


def read_bert_vocabulary(path, lowercase):
    """Read the vocabulary of a checkpoint.

    Args:
        path: str or Path of a `vocab.txt`, a `tokenizer.json`, or a folder with either.
        lowercase: bool, whether a `vocab.txt` given as a file is of an "uncased" model.

    Returns:
        `WordPieceTokenizer`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is invalid or of another model.

    Example:
        >>> path = Path("vocab.txt")
        >>> _ = path.write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\nhello")
        >>> read_bert_vocabulary(path, lowercase=True).encode(["Hello"])
        [[5]]
    """
    path = Path(path)
    if path.is_dir():
        return WordPieceTokenizer(read_tokenizer_file(path))
    if path.suffix == ".json":
        return WordPieceTokenizer.load(path)
    return WordPieceTokenizer.load_vocabulary(path, lowercase)


def write_bert_vocabulary(folder, tokenizer, max_length):
    """Write a vocabulary as `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`.

    Args:
        folder: str or Path, which must exist.
        tokenizer: `WordPieceTokenizer`.
        max_length: int, the number of positions of the model.

    Example:
        >>> tokenizer = WordPieceTokenizer.train(["low lower"], vocab_size=20)
        >>> write_bert_vocabulary(".", tokenizer, max_length=512)
        >>> sorted(path.name for path in Path().iterdir())
        ['tokenizer.json', 'tokenizer_config.json', 'vocab.txt']
    """
    folder = Path(folder)
    path = folder / "tokenizer.json"
    tokenizer.save(path)
    file = TokenizerFile.read(path)
    normalizer = file.content.get("normalizer") or {}
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer.get("lowercase", False),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": max_length,
    }
    for name, text in (
        # Without the added tokens, which only the tokenizer.json can describe.
        ("vocab.txt", "\n".join(file.vocabulary[: len(file.model["vocab"])])),
        ("tokenizer_config.json", json.dumps(config, indent=2)),
    ):
        with replacing(folder / name) as beside:
            beside.write_text(text + "\n", encoding="utf-8")
