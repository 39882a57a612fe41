"""The examples of the README run."""

import json
import re
from pathlib import Path

import pytest
import real_weights
from claims import CLAIMS, OUTCOMES

ROOT = Path(__file__).parent.parent
ENGLISH, CHINESE = ((ROOT / n).read_text("utf-8") for n in ("README.md", "README.zh-CN.md"))


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


@pytest.mark.slow
def test_the_translator_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = blocks(ENGLISH, "python")[0]
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "my_translator" / "saved_model.pb").is_file()
    assert "dtype=string" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.real
def test_the_bert_example_prints_what_its_comment_says(tmp_path, monkeypatch, capsys):
    real_weights.minilm()  # skips if not installed
    monkeypatch.chdir(tmp_path)
    code = blocks(ENGLISH, "python")[1]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == re.search(r"print\(.*\)  # (.*\n)", code)[1]
    assert (tmp_path / "my_encoder" / "saved_model.pb").is_file()


def test_both_readmes_give_the_same_commands_and_code():
    for language, number in (("bash", 3), ("python", 2)):
        assert len(blocks(ENGLISH, language)) == number
        assert blocks(ENGLISH, language) == blocks(CHINESE, language)


def test_both_readmes_give_the_same_figures():
    def figures(text):
        table = text[text.index("[docs/results") :].split("\n## ")[0]
        rows = [line for line in table.splitlines() if line.startswith("|")]
        number = r"\d[\d,.]*\d|\d"
        return [sorted(re.findall(number, re.sub(r"\(docs/[^)]*\)", "", row))) for row in rows]

    assert len(figures(ENGLISH)) == 7  # including the header
    assert figures(ENGLISH) == figures(CHINESE)


@pytest.mark.parametrize(("language", "text"), [(0, ENGLISH), (1, CHINESE)], ids=["en", "zh-CN"])
def test_the_claims_are_counted_and_quoted_as_they_were_recorded(language, text):
    """The counts are those of the stored notebooks, the sentences those of claims.json."""
    found = {}
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                for kind, data in output.get("data", {}).items():
                    if kind.endswith("verdict+json"):
                        found[data["claim"]] = data
    section = re.search(r"\n## [^\n]*\n\n([^\n]*CLAIMS.*?)\n\n## ", text, re.S)[1]
    head, bullets = section.split("\n", 1)
    outcomes = [record["outcome"] for record in found.values()]
    counts = [outcomes.count(outcome) for outcome in OUTCOMES]
    assert re.findall(r"\d+", head) == [str(n) for n in (len(found), *counts)]
    lines = re.findall(r"^- \*\*(C\d+)\*\* (.*)$", bullets, re.M)
    assert len(lines) == 5
    for claim, line in lines:
        assert line == CLAIMS[claim]["interview"][language]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh-CN"])
def test_a_readme_stays_short(text):
    assert len(text.splitlines()) <= 130


@pytest.mark.parametrize("name", ["main", "test"])
def test_the_commands_are_marked_for_ci(name):
    assert len(re.findall(rf"<!-- command: {name} -->\n```bash\npython3 -m venv ", ENGLISH)) == 1
