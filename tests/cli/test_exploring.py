"""The command `explore`."""

import pytest
from command_line import command, command_here
from explorer_pages import read_stacks
from tiny_bert import tiny_folder

pytestmark = pytest.mark.one_of(10, "long")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("bert") / "bert")


def test_a_page_of_a_checkpoint(checkpoint, tmp_path):
    page = tmp_path / "page.html"
    done = command("explore", "--model", checkpoint, "a film", "bad", "--output", page)
    assert (done.returncode, done.stdout.decode()) == (0, f"Page: {page}\n"), done.stderr.decode()
    [stack] = read_stacks(page.read_text("utf-8"))
    assert stack.keys == ["[CLS]", "a", "film", "[SEP]", "bad", "[SEP]"]


def test_a_page_of_a_run(run, tmp_path):
    page = tmp_path / "page.html"
    texts = "Run!", "Cours !"
    done = command_here("explore", "--model", run[0], *texts, "--output", page, "--lang", "zh")
    assert done.returncode == 0, done.stderr.decode()
    text = page.read_text("utf-8")
    assert [stack.kind for stack in read_stacks(text)] == ["encoder", "decoder", "cross"]
    assert '<html lang="zh-CN">' in text


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["a", "b", "c"], "text: expected one or two, got 3. Quote each text."),
        (["a", "--model", "nowhere"], "--model: expected the folder of an exported translator"),
        (["a", "--model", "."], "expected"),
    ],
)
def test_bad_input_is_refused(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command_here("explore", *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert list(tmp_path.iterdir()) == []
