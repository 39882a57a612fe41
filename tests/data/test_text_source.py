"""Sources of documents for pretraining."""

import pytest

from tf_transformer.data import TextSource, load_corpus


def test_a_corpus_gives_each_distinct_sentence_once():
    documents = TextSource(corpus="zh-en").load()
    assert sorted(documents) == [[text] for text in sorted({zh for zh, _ in load_corpus("zh-en")})]


def test_a_source_is_one_thing(tmp_path):
    path = tmp_path / "news.zh.txt"
    path.write_text("a\n\nb")
    source = TextSource(files=[path])
    assert source == TextSource(files=(str(path),))
    assert (source.name, source.load()) == ("news", [["a"], ["b"]])
    for arguments in ({}, {"corpus": "en-zh", "files": (path,)}):
        with pytest.raises(ValueError, match="data: expected either a corpus or text files"):
            TextSource(**arguments)
    with pytest.raises(ValueError, match="files: expected a tuple of file names, got 'a.txt'"):
        TextSource(files="a.txt")
