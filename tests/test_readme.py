"""What the README shows, runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[1]
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "my_translator" / "saved_model.pb").is_file()
    assert "dtype=string" in capsys.readouterr().out


def test_both_readmes_give_the_same_commands_and_code():
    english, chinese = ((ROOT / n).read_text("utf-8") for n in ("README.md", "README.zh-CN.md"))
    for language, blocks in (("bash", 3), ("python", 1)):
        code = re.findall(rf"```{language}\n(.*?)```", english, re.S)
        assert len(code) == blocks
        assert code == re.findall(rf"```{language}\n(.*?)```", chinese, re.S)
    synopses = [
        re.search(r"```\n(tf-transformer train .*?)```", s, re.S)[1] for s in (english, chinese)
    ]
    assert synopses[0] == synopses[1]
