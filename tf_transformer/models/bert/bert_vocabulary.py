"""BERT's vocabulary, read and written in the formats of its programs."""

import json
from pathlib import Path

from tf_transformer.data.replacing import replacing
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.tokenizers import WordPieceTokenizer
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile


def read_bert_vocabulary(path, lowercase):
    """Read the vocabulary of a checkpoint."""
    path = Path(path)
    if path.is_dir():
        return WordPieceTokenizer(read_tokenizer_file(path))
    if path.suffix == ".json":
        return WordPieceTokenizer.load(path)
    return WordPieceTokenizer.load_vocabulary(path, lowercase)


def write_bert_vocabulary(folder, tokenizer, max_length):
    """Write a vocabulary as `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`."""
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
