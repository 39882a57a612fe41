"""A failed write leaves existing files intact."""

import os
import resource
import subprocess
import sys

import pytest

from tf_transformer.data.files import replacing, write_json
from tf_transformer.json_text import parse_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_is_replaced(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with replacing(target) as beside:
        beside.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new" and names(tmp_path) == ["a.txt"]


def test_folder_is_replaced(tmp_path):
    target = tmp_path / "model"
    for content in ("old", "new"):
        with replacing(target, only_with="mark") as beside:
            beside.mkdir()
            (beside / "mark").touch()
            (beside / content).write_text(content)
    assert names(target) == ["mark", "new"] and names(tmp_path) == ["model"]


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path):
    target = tmp_path / "project"
    for content in ("config.json", "config.json", "thesis.txt"):  # new, only this file, another
        with replacing(target, only_with="config.json") as beside:
            beside.mkdir()
            (beside / content).write_text("mine")
    with (
        pytest.raises(FileExistsError, match="project: .* config.json to replace"),
        replacing(target, only_with="config.json") as beside,
    ):
        pytest.fail("the block must not run")
    assert names(target) == ["thesis.txt"] and names(tmp_path) == ["project"]


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    target = tmp_path / "vectors"
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    with (
        pytest.raises(IsADirectoryError, match="vectors: expected a new or existing file"),
        replacing(target),
    ):
        pytest.fail("the block must not run")
    assert names(target) == ["thesis.txt"] and names(tmp_path) == ["vectors"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failed_write_leaves_the_old_one(tmp_path, kind):
    target = tmp_path / "kept"
    if kind == "folder":
        target.mkdir()
    content = target / "inside" if kind == "folder" else target
    mark = "inside" if kind == "folder" else None
    content.write_text("old")
    with pytest.raises(OSError, match="full"), replacing(target, mark) as beside:
        if kind == "folder":
            beside.mkdir()
        (beside / "inside" if kind == "folder" else beside).write_text("half")
        raise OSError("disk full")
    assert content.read_text() == "old" and names(tmp_path) == ["kept"]


def test_a_writer_that_wrote_nothing_leaves_the_old_folder(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "inside").write_text("old")
    with pytest.raises(FileNotFoundError), replacing(target, only_with="inside"):
        pass
    assert (target / "inside").read_text() == "old" and names(tmp_path) == ["model"]


@pytest.fixture(scope="module")
def dead():
    """The number of a process that has ended."""
    return int(subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"]))


def test_what_a_killed_writer_left_is_cleared_up(tmp_path, dead):
    target = tmp_path / "a.[x].txt"
    for name in (f".{dead}.new.a.[x].txt", f".{dead}.new.b.txt", f".{os.getppid()}.new.a.[x].txt"):
        (tmp_path / name).write_text("half")
    with replacing(target) as beside:
        beside.write_text("new")
    left = {f".{dead}.new.b.txt", f".{os.getppid()}.new.a.[x].txt", target.name}
    assert set(names(tmp_path)) == left  # other targets, and writers that are alive


def test_a_folder_that_a_killed_writer_moved_aside_comes_back(tmp_path, dead):
    aside = tmp_path / f".{dead}.old.model"
    aside.mkdir()
    (aside / "mark").write_text("old")
    with pytest.raises(OSError, match="full"), replacing(tmp_path / "model", only_with="mark"):
        raise OSError("disk full")
    assert names(tmp_path) == ["model"] and (tmp_path / "model" / "mark").read_text() == "old"


def test_space_is_checked_before_anything_is_written(tmp_path):
    target = tmp_path / "kept"
    target.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        message = "File too large, 200,000 bytes are needed: '.*kept'"
        with pytest.raises(OSError, match=message), replacing(target, size=200_000):
            pytest.fail("the block must not run")
        with replacing(tmp_path / "small", size=90_000) as beside:
            assert not beside.exists()
            beside.write_text("new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == ["kept", "small"] and target.read_text() == "old"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_content_reaches_the_disk_before_the_name(tmp_path, monkeypatch, kind):
    target, seen = tmp_path / "model", []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda file: (seen.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file))
    )
    monkeypatch.setattr(os, "replace", lambda *given: (seen.append("renamed"), replace(*given)))
    with replacing(target, only_with=None if kind == "file" else "inside") as beside:
        if kind == "folder":
            beside.mkdir()
        (beside / "inside" if kind == "folder" else beside).write_text("new")
    written = [str(beside), str(beside / "inside")] if kind == "folder" else [str(beside)]
    assert seen == [*written, "renamed", str(tmp_path)]


@pytest.mark.parametrize("indent", [2, None])
def test_json_of_any_string_is_read_again(tmp_path, indent):
    content = {"file": os.fsdecode(b"/data/\xff.txt"), "label": "中文", "rate": [0.1, None]}
    write_json(tmp_path / "new" / "x.json", content, indent)
    text = (tmp_path / "new" / "x.json").read_text("utf-8")
    assert parse_json(text) == content
    assert "中文" in text and text.endswith("}\n") and len(list(tmp_path.rglob("*"))) == 2
