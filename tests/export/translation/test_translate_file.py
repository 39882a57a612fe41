"""Translating a file: order of lines, interruption, resuming, and errors for mismatched files."""

import gc
import gzip
import importlib
import json
import re
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from upper_translator import UpperTranslator

from tf_transformer.export.translation.translate_texts import translate_file

LINES = [" ".join("word" for _ in range(i * 7 % 5)) + f" {i}" for i in range(23)]
EXPECTED = [line.upper() for line in LINES]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    """One batch after the other, so that the fake translator sees them in their order."""
    module = importlib.import_module("tf_transformer.export.translation.translate_texts")
    monkeypatch.setattr(module, "cores", lambda: 1)


def translated(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize("lines_at_once", [1, 5, 23, 100])
@pytest.mark.parametrize("beam", [False, True])
def test_lines_keep_their_order(source, tmp_path, lines_at_once, beam):
    target, seen, translator = tmp_path / "target.txt", [], UpperTranslator()
    options = {"beam": beam, "lines_at_once": lines_at_once, "tokens_per_batch": 9}
    count = translate_file(
        translator, source, target, progress=lambda *state: seen.append(state), **options
    )
    assert count == 23 and translated(target) == EXPECTED
    numbers, shares = zip(*seen, strict=True)
    assert list(numbers) == np.cumsum([len(batch) for batch in translator.batches]).tolist()
    assert {*range(lines_at_once, 23, lines_at_once)} <= set(numbers)  # the ends of the chunks
    assert sorted(set(shares)) == list(shares)
    assert seen[-1] == (23, 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


def test_progress_is_told_after_each_batch_but_what_is_kept_are_whole_parts(source, tmp_path):
    target, seen, translator = tmp_path / "target.txt", [], UpperTranslator(fails_after=4)
    options = {"lines_at_once": 20, "tokens_per_batch": 12}
    with pytest.raises(KeyboardInterrupt):
        translate_file(translator, source, target, progress=lambda *s: seen.append(s), **options)
    assert [lines for lines, _ in seen] == [2, 4, 6, 8]
    share = len("\n".join(LINES[:20]) + "\n") / source.stat().st_size
    np.testing.assert_allclose([part for _, part in seen], np.array([2, 4, 6, 8]) / 20 * share)
    assert (tmp_path / "target.txt.unfinished").read_text() == ""
    translate_file(UpperTranslator(), source, target, progress=lambda *s: seen.append(s), **options)
    assert seen[4][0] == 2 and (20, share) in seen and seen[-1] == (23, 1.0)
    assert translated(target) == EXPECTED


def test_strange_lines_are_lines_too(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"a\r\n\n\xff\xfe\nb\x0bc\xe2\x80\xa8d\n" + b"x" * 200_000 + b"\nlast")
    counted = []
    assert (
        translate_file(
            UpperTranslator(),
            source,
            target,
            lines_at_once=4,
            counted=lambda first, counts: counted.append((first, counts)),
        )
        == 6
    )
    lines = translated(target)
    assert lines[:4] == ["A", "", "��", "B C D"]
    assert lines[4:] == ["X" * 2**16, "LAST"]
    assert [(first, len(counts)) for first, counts in counted] == [(1, 4), (5, 2)]


def test_a_part_ends_after_a_mebibyte(tmp_path):
    source, firsts = tmp_path / "source", []
    source.write_text("\n".join(f"{i} " + "x" * 2**17 for i in range(20)) + "\n")
    translate_file(
        UpperTranslator(),
        source,
        tmp_path / "target",
        counted=lambda first, counts: firsts.append(first),
    )
    assert firsts == [1, 9, 17]
    assert [line.split()[0] for line in translated(tmp_path / "target")] == [*map(str, range(20))]


def test_a_byte_order_mark_is_no_text(source, tmp_path):
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes() + b"\xef\xbb\xbfx\n")
    translate_file(UpperTranslator(), source, tmp_path / "target", lines_at_once=5)
    assert translated(tmp_path / "target") == [*EXPECTED, "\ufeffX"]


def test_a_file_that_another_process_writes_is_left_alone(source, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    target, unfinished = tmp_path / "target.txt", tmp_path / "target.txt.unfinished"
    with open(unfinished, "ab") as other:
        other.write(b"theirs\n")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="target: expected a file that no other process"):
            translate_file(UpperTranslator(), source, target)
        assert unfinished.read_text() == "theirs\n" and not target.exists()
    assert translate_file(UpperTranslator(), source, target) == 23
    assert translated(target) == EXPECTED


def test_an_empty_file_gives_an_empty_file(tmp_path):
    (tmp_path / "source").write_bytes(b"")
    assert translate_file(UpperTranslator(), tmp_path / "source", tmp_path / "target") == 0
    assert (tmp_path / "target").read_bytes() == b""


@pytest.fixture
def stopped(source, tmp_path):
    """Return the target of a call interrupted after ten lines, with an unrecorded partial line."""
    target = tmp_path / "target.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(UpperTranslator(fails_after=2), source, target, lines_at_once=5)
    unfinished = tmp_path / "target.txt.unfinished"
    assert not target.exists() and translated(unfinished) == EXPECTED[:10]
    with open(unfinished, "a") as file:
        file.write("half a li")
    return target


def test_it_goes_on_after_a_stop(stopped, source):
    translator = UpperTranslator()
    assert translate_file(translator, source, stopped, lines_at_once=4) == 23
    assert translated(stopped) == EXPECTED
    again = {line for batch in translator.batches for line in batch}
    assert again == set(LINES[10:])


def test_a_stop_before_anything_was_noted(source, tmp_path):
    target = tmp_path / "target.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(UpperTranslator(fails_after=0), source, target)
    assert translate_file(UpperTranslator(), source, target) == 23
    assert translated(target) == EXPECTED


def test_a_stop_between_the_last_lines_and_the_rename(source, tmp_path):
    target = tmp_path / "target.txt"

    def stop(lines, share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        translate_file(UpperTranslator(), source, target, progress=stop)
    translator = UpperTranslator()
    assert translate_file(translator, source, target) == 23
    assert translated(target) == EXPECTED and translator.batches == []


def test_what_belongs_to_something_else_is_not_mixed_in(stopped, source, tmp_path):
    notes = tmp_path / "target.txt.unfinished.json"
    anew = re.escape(f"Delete {notes} to start over")
    with pytest.raises(ValueError, match=f"another model or other settings.*{anew}"):
        translate_file(UpperTranslator(weight=2.0), source, stopped)
    with pytest.raises(ValueError, match="another model or other settings"):
        translate_file(UpperTranslator(), source, stopped, beam=True)
    with pytest.raises(ValueError, match="another model or other settings"):
        translator = UpperTranslator()
        translator.settings = tf.constant('{"beam_size": 8}')
        translate_file(translator, source, stopped)
    text = source.read_text()
    source.write_text(text.replace("word 3", "word 4", 1))
    with pytest.raises(ValueError, match=f"of this source.*{anew}"):
        translate_file(UpperTranslator(), source, stopped)
    source.write_text(text)
    unfinished = tmp_path / "target.txt.unfinished"
    unfinished.write_bytes(unfinished.read_bytes()[:20])
    with pytest.raises(ValueError, match="this unfinished target"):
        translate_file(UpperTranslator(), source, stopped)
    of_text = json.dumps({**json.loads(notes.read_text()), "source_bytes": "1"})
    for damaged in ("", "[]", "[" * 99_999, json.dumps({"beam": False}), of_text):
        notes.write_text(damaged)
        with pytest.raises(ValueError, match=f"expected the progress in JSON.*{anew}"):
            translate_file(UpperTranslator(), source, stopped)
    notes.unlink()
    assert translate_file(UpperTranslator(), source, stopped) == 23
    assert translated(stopped) == EXPECTED


def test_bad_input(source, tmp_path):
    target = tmp_path / "target.txt"
    with pytest.raises(ValueError, match="lines_at_once: expected at least 1, got 0"):
        translate_file(UpperTranslator(), source, target, lines_at_once=0)
    with pytest.raises(FileNotFoundError, match="source: expected a text file"):
        translate_file(UpperTranslator(), tmp_path / "none", target)
    with pytest.raises(FileNotFoundError, match="target: expected a file in a folder, got no"):
        translate_file(UpperTranslator(), source, tmp_path / "none" / "target")
    packed = tmp_path / "source.gz"
    packed.write_bytes(gzip.compress(b"one\n"))
    with pytest.raises(ValueError, match=r"source: .* is gzipped. Unpack it: gunzip"):
        translate_file(UpperTranslator(), packed, target)
    target.write_text("mine")
    with pytest.raises(FileExistsError, match="target: expected a new file"):
        translate_file(UpperTranslator(), source, target)
    assert target.read_text() == "mine"
    unfinished = source.rename(tmp_path / "other.unfinished")
    with pytest.raises(ValueError, match="source that is not the unfinished target"):
        translate_file(UpperTranslator(), unfinished, tmp_path / "other")
    assert len(translated(unfinished)) == 23


@pytest.fixture
def usual_collection():
    """Collect garbage as often as a user's process does, not as rarely as conftest.py says."""
    rare = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*rare)


@pytest.mark.slow
def test_the_memory_does_not_grow_with_the_file(tmp_path, usual_collection):
    source = tmp_path / "source"
    source.write_text(("some words of a line, some more " * 3 + "\n") * 20_000)
    translator = UpperTranslator()
    translator.batches = _Nothing()
    few = tmp_path / "few"
    few.write_text("some words\n" * 400)
    translate_file(translator, few, tmp_path / "first")  # fills the caches of Python and TensorFlow
    tracemalloc.start()
    translate_file(translator, source, tmp_path / "target", lines_at_once=200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < source.stat().st_size / 4


class _Nothing(list):
    def append(self, item):
        """Discard the item."""
