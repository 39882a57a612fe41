"""Parts of files have every line once, wherever they are cut."""

import gzip

import pytest

from tf_transformer.data import preparing as module
from tf_transformer.data import read_files, read_tsv
from tf_transformer.data.preparing import cut_into_parts

LINES = ["a\tb", "c\r\td\tmore", " e \tf\u2028g", "h\u0085\ti", "j\tk", "l\tm", "n\to"]


@pytest.mark.parametrize("every", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("block", [1, 5, 2**24])
def test_a_file_in_parts(tmp_path, monkeypatch, every, end, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    path = tmp_path / "pairs.tsv"
    path.write_bytes(("\ufeff" + "\n".join(LINES) + end).encode())
    parts = cut_into_parts([(str(path),)], every)
    assert [part.lines for part in parts] == [min(every, 7 - n) for n in range(0, 7, every)]
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [pair for part in parts for pair in part.pairs()] == read_tsv(path)


@pytest.mark.parametrize("packed", [False, True])
def test_aligned_files_and_gzip(tmp_path, packed):
    paths = [tmp_path / "text.en", tmp_path / "text.fr"]
    texts = ["".join(f"{side * n} {n}\n" for n in range(1, 12)) for side in ("x", "yy")]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    [files] = [tuple(map(str, paths))]
    parts = cut_into_parts([files, files], 4)
    assert [part.first for part in parts] == [1, 1] if packed else [1, 5, 9, 1, 5, 9]
    assert [pair for part in parts for pair in part.pairs()] == 2 * read_files(*paths)


def test_bad_files(tmp_path):
    one, other = tmp_path / "a.en", tmp_path / "a.fr"
    one.write_text("a\nb\nc\n")
    other.write_text("a\nb\n")
    with pytest.raises(ValueError, match="target_file: expected as many .* 3 lines in .*a.en"):
        cut_into_parts([(str(one), str(other))], 2)
    with pytest.raises(FileNotFoundError, match="tsv: expected a text file, got no"):
        cut_into_parts([(str(tmp_path / "c"),)], 2)
    other.write_bytes(b"")
    with pytest.raises(ValueError, match="tsv: expected at least one line of text in .*a.fr"):
        cut_into_parts([(str(other),)], 2)
    other.write_bytes(gzip.compress(b"a\tb\n" * 999)[:-9])
    with pytest.raises(ValueError, match="tsv: expected a complete gzip file, got .* is damaged"):
        cut_into_parts([(str(other),)], 2)


@pytest.mark.parametrize(
    "line, message",
    [
        (b"alone", "at least 2 columns separated by a tab, got 1 on line 5 of"),
        (b"a\t ", "a blank side on line 5 of"),
        (b"a\t\xff", "expected UTF-8, got byte 0xff at byte 3 of line 5 of"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"a\tb\n" * 4 + line + b"\na\tb\n")
    last = cut_into_parts([(str(path),)], 3)[1]
    with pytest.raises(ValueError, match=message):
        list(last.pairs())
