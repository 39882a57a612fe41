import functools
import json

import pytest
import tensorflow as tf
from tokenizer_files import MAKERS

from tf_transformer.data import load_corpus
from tf_transformer.tokenizers import BPETokenizer, GraphTokenizer, Tokenizer


@pytest.fixture(scope="session")
def corpus_texts():
    """Every sentence of both included corpora, by language."""
    english_zh, chinese = zip(*load_corpus("en-zh"), strict=True)
    english_fr, french = zip(*load_corpus("en-fr"), strict=True)
    return {"en": english_zh + english_fr, "zh": chinese, "fr": french}


@pytest.fixture(scope="session")
def share_of(request):
    """A function: keeps all texts with `--whole`, otherwise every fourth, to save time."""
    step = 1 if request.config.getoption("--whole") else 4
    return lambda texts: texts[::step]


@pytest.fixture(scope="session")
def all_texts(corpus_texts, share_of):
    return share_of([text for texts in corpus_texts.values() for text in texts])


@pytest.fixture(scope="session")
def file_of(all_texts, tmp_path_factory):
    """A function: kind of tokenizer -> path of its `tokenizer.json`."""
    folder = tmp_path_factory.mktemp("tokenizers")

    @functools.cache
    def write(kind):
        path = folder / f"{kind}.json"
        MAKERS[kind](all_texts, path)
        return path

    return write


@pytest.fixture(scope="session")
def pair_of(file_of):
    """A function: kind of tokenizer -> its graph tokenizer and its Python tokenizer."""

    @functools.cache
    def load(kind):
        return GraphTokenizer.from_file(file_of(kind)), Tokenizer.load(file_of(kind))

    return load


@pytest.fixture(scope="session")
def trained(file_of):
    return BPETokenizer.load(file_of("bpe"))


@pytest.fixture(scope="session")
def tokenizer_path(file_of):
    return file_of("bpe")


@pytest.fixture
def rewrite(file_of, tmp_path):
    """A function: writes a file with changed content; returns the path."""

    def rewrite_file(change, kind="bpe"):
        content = json.loads(file_of(kind).read_text(encoding="utf-8"))
        change(content)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return rewrite_file


@pytest.fixture
def without_tracing():
    """Run every `tf.function` eagerly: tracing takes longer than a small vocabulary's few words.

    Graphs are tested with trained vocabularies, in `test_exactness.py`.
    """
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
