import gzip

import pytest

from tf_transformer.data import read_files, read_tsv
from tf_transformer.data.files import one_line


@pytest.fixture
def write(tmp_path):
    def write_bytes(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_bytes


def test_two_files_are_read_line_by_line(write):
    source = write("a.en", "Hi.\r\n Run. \r\n")
    target = write("a.zh", "嗨。\n跑。")  # no line feed at the end
    assert read_files(source, str(target)) == [("Hi.", "嗨。"), ("Run.", "跑。")]


def test_only_a_line_feed_ends_a_line(write):
    source = write("a.en", "one\u2028still one\ntwo\x85\rstill two\n")
    target = write("a.fr", "un\ndeux\n")
    pairs = read_files(source, target)
    assert pairs == [("one\u2028still one", "un"), ("two\x85\rstill two", "deux")]


def test_gzip_and_byte_order_mark_are_removed(write):
    packed = write("a.tsv.gz", gzip.compress("\ufeffHi.\t嗨。\tby CM\nRun.\t跑。\n".encode()))
    assert read_tsv(packed) == [("Hi.", "嗨。"), ("Run.", "跑。")]


def test_gzip_is_recognized_without_its_ending(write):
    assert read_tsv(write("a.tsv", gzip.compress(b"a\tb\n"))) == [("a", "b")]


def test_missing_file_is_named(write, tmp_path):
    with pytest.raises(FileNotFoundError, match="path: .*none.tsv"):
        read_tsv(tmp_path / "none.tsv")
    with pytest.raises(FileNotFoundError, match="target_file: .*none.fr"):
        read_files(write("a.en", "a"), tmp_path / "none.fr")


def test_different_line_counts_name_both(write):
    with pytest.raises(ValueError, match="3 lines in .*a.en and 2 lines in .*a.fr"):
        read_files(write("a.en", "a\nb\nc\n"), write("a.fr", "a\nb\n"))


def test_not_utf8_names_line_and_byte(write):
    path = write("a.tsv", "été\tsummer\nh".encode() + "é\tx".encode("latin-1"))
    with pytest.raises(ValueError, match="byte 0xe9 at byte 2 of line 2 of .*a.tsv"):
        read_tsv(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_file_is_refused(write, content):
    path = write("a.tsv", content)
    with pytest.raises(ValueError, match="a.tsv, which is empty"):
        read_tsv(path)
    with pytest.raises(ValueError, match="source_file: .*a.tsv, which is empty"):
        read_files(path, write("b", "b"))


def test_truncated_gzip_is_refused(write):
    with pytest.raises(ValueError, match="a.tsv.gz, which is damaged"):
        read_tsv(write("a.tsv.gz", gzip.compress(b"a\tb\n" * 100)[:-9]))


def test_too_few_columns_name_the_line(write):
    with pytest.raises(ValueError, match="got 1 on line 2 of .*a.tsv"):
        read_tsv(write("a.tsv", "a\tb\nonly one\nc\td"))


@pytest.mark.parametrize("line", ["a\t ", "\tb"])
def test_blank_side_in_a_tsv_names_the_line(write, line):
    with pytest.raises(ValueError, match="blank side on line 2 of .*a.tsv"):
        read_tsv(write("a.tsv", f"a\tb\n{line}\n"))


def test_blank_line_in_one_file_names_it(write):
    with pytest.raises(ValueError, match="target_file: .*blank side on line 2 of .*a.fr"):
        read_files(write("a.en", "a\nb\nc\n"), write("a.fr", "a\n\nc\n"))
    with pytest.raises(ValueError, match="source_file: .*blank side on line 3 of .*b.en"):
        read_files(write("b.en", "a\nb\n \n"), write("b.fr", "a\nb\nc\n"))


def test_a_translation_is_one_line():
    assert one_line("a\tb\r\nc\x0bd\u2028e  f") == "a b c d e  f"
    assert one_line("") == ""
