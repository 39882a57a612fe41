"""Sources of sentence pairs and their languages."""

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


def test_several_files(tmp_path):
    for name, text in (("a.tsv", "one\teins\n"), ("b.tsv", "two\tzwei\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    source = PairSource(tsv=[tmp_path / "a.tsv", tmp_path / "b.tsv"])
    assert source.load() == [("one", "eins"), ("two", "zwei")] and source.name == "a"
    # A list, as in JSON, and a single file in a list.
    assert PairSource(tsv=list(source.tsv)) == source
    assert PairSource(tsv=[str(tmp_path / "a.tsv")]) == PairSource(tsv=tmp_path / "a.tsv")
    moved = source.with_paths(lambda file: file.replace(".tsv", ".txt"))
    assert moved.tsv == (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    with pytest.raises(ValueError, match="as many target files as source files, got 2 and 1"):
        PairSource(source_file=("a", "b"), target_file="c")
