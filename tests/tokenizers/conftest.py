import json

import pytest

from tf_transformer.data import load_corpus
from tf_transformer.tokenizers import BPETokenizer


@pytest.fixture(scope="session")
def corpus_texts():
    """Every sentence of both embedded corpora, by language."""
    english_zh, chinese = zip(*load_corpus("en-zh"), strict=True)
    english_fr, french = zip(*load_corpus("en-fr"), strict=True)
    return {"en": english_zh + english_fr, "zh": chinese, "fr": french}


@pytest.fixture(scope="session")
def trained(corpus_texts):
    return BPETokenizer.train((text for texts in corpus_texts.values() for text in texts), 8000)


@pytest.fixture(scope="session")
def tokenizer_path(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    trained.save(path)
    return path


@pytest.fixture
def rewrite(tokenizer_path, tmp_path):
    """Writes the trained file again after a change to its content; returns the path."""

    def rewrite_file(change):
        content = json.loads(tokenizer_path.read_text(encoding="utf-8"))
        change(content)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return rewrite_file
