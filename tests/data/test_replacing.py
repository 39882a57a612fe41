"""A failed write leaves existing files intact."""

import pytest

from tf_transformer.data.replacing import replacing


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
