"""Sources of pairs and their languages."""

import pytest

from tf_transformer.data import PairSource


def test_corpus():
    source = PairSource(corpus="zh-en")
    assert (source.name, source.target_language) == ("zh-en", "en")
    assert source.load()[0] == ("嗨。", "Hi.")


def test_files(tmp_path):
    english, german = tmp_path / "train.en", tmp_path / "train.de"
    english.write_text("one\ntwo\n", encoding="utf-8")
    german.write_text("eins\nzwei\n", encoding="utf-8")
    source = PairSource(source_file=str(english), target_file=str(german))
    assert (source.name, source.target_language) == ("train", "de")
    assert source.load() == [("one", "eins"), ("two", "zwei")]


def test_tsv(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("one\teins\tsomebody\n", encoding="utf-8")
    assert PairSource(tsv=str(file)).load() == [("one", "eins")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "got 0 of them"),
        ({"corpus": "en-zh", "tsv": "x.tsv"}, "got 2 of them"),
        ({"source_file": "x.en"}, "expected both or neither"),
    ],
)
def test_one_source_only(given, said):
    with pytest.raises(ValueError, match=said):
        PairSource(**given)
