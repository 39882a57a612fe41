"""The files around the code parse, and say what setup.cfg and the code say."""

import configparser
import os
import re
from pathlib import Path

import pytest

import tf_transformer

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
SETUP = (ROOT / "setup.cfg").read_text("utf-8")


def read(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def test_the_workflow_runs_the_check_on_every_python():
    job = read(".github/workflows/ci.yml")["jobs"]["check"]
    assert job["steps"][-1] == {"run": ".ci/run"} and os.access(ROOT / ".ci" / "run", os.X_OK)
    pythons = re.findall(r"Python :: (3\.\d+)", SETUP)
    assert job["strategy"]["matrix"]["python"] == pythons


def test_a_workflow_runs_every_test_with_the_command_of_the_readme():
    steps = read(".github/workflows/whole.yml")["jobs"]["whole"]["steps"]
    setup, script = (step["run"] for step in steps[-2:])
    readme = (ROOT / "README.md").read_text("utf-8")
    command = re.search(r"<!-- command: test -->\n+```\w*\n(.*?)\n```", readme, re.DOTALL)[1]
    install, _, tests = command.rpartition(" && ")
    assert setup == install
    runs = re.findall(r"(\S*python .*) \|\| failed=1", script)
    assert runs == [f"{tests} --whole {part}" for part in ('"tests/$part"', "tests/test_*.py")]


def test_hooks_use_the_same_ruff():
    [pinned] = re.findall(r"ruff==\S+", SETUP)
    for hook in read(".pre-commit-config.yaml")["repos"][0]["hooks"]:
        assert hook["additional_dependencies"] == [pinned]
        assert hook["entry"].startswith("ruff ")


def test_editors_use_the_same_line_length():
    editor = configparser.ConfigParser()
    editor.read_string("[all]\n" + (ROOT / ".editorconfig").read_text("utf-8"))
    [length] = re.findall(r"line-length = (\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert editor["*.py"]["max_line_length"] == length


def test_the_citation_and_the_changelog_have_the_version():
    version = tf_transformer.__version__
    citation = read("CITATION.cff")
    assert citation["version"] == version and citation["license"] in SETUP
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## (\S+)", changes, re.MULTILINE)[1] == version


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms(name):
    form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] == "textarea" and field["attributes"]["label"] and field["id"]
