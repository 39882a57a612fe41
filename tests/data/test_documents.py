"""Documents from files: a sentence a line, a blank line between."""

import gzip

import pytest

from tf_transformer.data import TextSource, load_corpus, read_documents, split_documents


@pytest.fixture
def write(tmp_path):
    def write_bytes(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_bytes


def test_blank_lines_divide_documents_and_so_do_files(write):
    first = write("a.txt", "\n\n一。\r\n 二。 \n\n \t\n三。\n\n")
    second = write("b.txt", "four\u2028still four")
    assert read_documents([first, str(second)]) == [
        ["一。", "二。"],
        ["三。"],
        ["four\u2028still four"],
    ]


def test_one_path_may_stand_alone_and_gzip_is_read(write):
    path = write("a.txt.gz", gzip.compress("\ufeffa\nb\n\nc".encode()))
    assert read_documents(path) == read_documents(str(path)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.txt is empty"),
        (b"\n \n", "a.txt is empty"),
        ("gut\n\nschön".encode("latin-1"), "byte 0xf6 at byte 4 of line 3 of .*a.txt"),
        (gzip.compress(b"a\nb\n" * 99)[:-9], "a.txt is damaged"),
    ],
)
def test_files_that_are_no_text_are_refused(write, content, message):
    with pytest.raises(ValueError, match=f"paths: .*{message}"):
        read_documents([write("a.txt", content)])


def test_no_file_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match="paths: .*none.txt"):
        read_documents(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="paths: expected at least one text file, received none"):
        read_documents([])


def test_a_corpus_gives_each_distinct_sentence_once():
    documents = TextSource(corpus="zh-en").load()
    assert sorted(documents) == [[text] for text in sorted({zh for zh, _ in load_corpus("zh-en")})]


def test_a_source_is_one_thing(write):
    path = write("news.zh.txt", "a\n\nb")
    source = TextSource(files=[path])
    assert source == TextSource(files=(str(path),))
    assert (source.name, source.load()) == ("news", [["a"], ["b"]])
    for arguments in ({}, {"corpus": "en-zh", "files": (path,)}):
        with pytest.raises(ValueError, match="data: expected either a corpus or text files"):
            TextSource(**arguments)
    with pytest.raises(ValueError, match="files: expected a tuple of file names, got 'a.txt'"):
        TextSource(files="a.txt")


def test_the_split_keeps_documents_whole_and_equal_ones_together():
    documents = [[f"Say {n % 50}.", "Again."] for n in range(100)]
    documents += [[f"SAY  {n}. again."] for n in range(50)]
    train, validation = split_documents(documents, 0.2)
    assert sorted(train + validation) == sorted(documents)
    texts = [{" ".join(d).casefold().replace("  ", " ") for d in s} for s in (train, validation)]
    assert not texts[0] & texts[1]
    assert split_documents(documents[:70], 0.2)[1] == [d for d in documents[:70] if d in validation]


def test_a_split_that_cannot_be():
    with pytest.raises(ValueError, match="validation_share: expected 0 < share < 1, received 1"):
        split_documents([["a"]], 1)
    with pytest.raises(ValueError, match="enough for training and validation, received 1 and 0"):
        split_documents([["a"]], 0.001)
