"""Documents from files: one sentence per line, a blank line between documents."""

import gzip

import pytest

from tf_transformer.data import read_documents


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
        (b"", "a.txt, which is empty"),
        (b"\n \n", "a.txt, which is empty"),
        ("gut\n\nschön".encode("latin-1"), "byte 0xf6 at byte 4 of line 3 of .*a.txt"),
        (gzip.compress(b"a\nb\n" * 99, mtime=0)[:-9], "a.txt, which is damaged"),
    ],
)
def test_files_that_are_no_text_are_refused(write, content, message):
    with pytest.raises(ValueError, match=f"paths: .*{message}"):
        read_documents([write("a.txt", content)])


def test_no_file_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match="paths: .*none.txt"):
        read_documents(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="paths: expected at least one text file, got none"):
        read_documents([])
