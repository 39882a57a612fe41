"""`python -m benchmarks`: the list, every `--help`, and the files that the benchmarks refer to."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.catalogue import BENCHMARKS
from benchmarks.harness.environments import LIBRARIES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"
# Call `--help` of every benchmark in one process, which must not import TensorFlow.
EVERY_HELP = """
import sys
from benchmarks.__main__ import main
from benchmarks.catalogue import BENCHMARKS
for name in [*(benchmark.name for benchmark in BENCHMARKS), "all"]:
    try:
        main([name, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, name
    for heavy in ("tensorflow", "jax", "torch", "matplotlib"):
        assert heavy not in sys.modules, (name, heavy)
"""


def python(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        **options,
    )


def programs():
    """Return every Python file of the benchmarks."""
    return [path for path in sorted(FOLDER.rglob("*.py")) if ".environments" not in path.parts]


def strings(path):
    """Return all string constants in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [value for value in values if isinstance(value, str)]


def test_list_names_every_benchmark():
    done = python("-m", "benchmarks", check=True)
    for benchmark in BENCHMARKS:
        entry = rf"^  {benchmark.name} .*\n      {re.escape(benchmark.summary)}$"
        assert re.search(entry, done.stdout, re.MULTILINE)


def test_help_of_every_benchmark():
    done = python("-c", EVERY_HELP)
    assert done.returncode == 0, done.stderr
    for benchmark in BENCHMARKS:
        assert f"usage: python -m benchmarks {benchmark.name} [-h]" in done.stdout


def test_unknown_name():
    done = python("-m", "benchmarks", "speed")
    assert done.returncode == 2
    assert "NAME: expected all or one of attention, " in done.stderr


def test_all_goes_on_after_a_failure_and_reports_it():
    program = (
        "import subprocess, sys\n"
        "from benchmarks import __main__ as command\n"
        "codes = iter([3, 0])\n"
        "subprocess.run = lambda call: subprocess.CompletedProcess(call, next(codes))\n"
        "sys.exit(command.main(['all', '--only', 'train', 'train_step', '--rounds', '1']))\n"
    )
    done = python("-c", program)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "FAILED  train --rounds 1",
        "ok      train_step --rounds 1",
    ]


def test_every_program_with_a_main_is_listed():
    listed = {FOLDER / benchmark.subject / f"{benchmark.name}.py" for benchmark in BENCHMARKS}
    takes_parser = {
        path for path in programs() if "def main(parser, arguments)" in path.read_text()
    }
    assert takes_parser == listed


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_results_and_libraries_exist(benchmark):
    for name in benchmark.results:
        assert list(FOLDER.glob(f"results/*/{name}.md"))
    assert set(benchmark.peers) <= set(LIBRARIES)


def test_every_result_belongs_to_a_benchmark():
    named = {name for benchmark in BENCHMARKS for name in benchmark.results}
    assert {path.stem for path in FOLDER.glob("results/*/*")} == named
    assert all(path.is_dir() for path in FOLDER.glob("results/*"))


def test_named_modules_exist():
    named = {
        (path.name, value.removeprefix("benchmarks."))
        for path in programs()
        for value in strings(path)
        if re.fullmatch(r"\w+\.peers\.\w+|benchmarks(\.\w+)+", value)
    }
    assert len(named) > 20
    missing = {
        (program, module)
        for program, module in named
        if not (FOLDER / f"{module.replace('.', '/')}.py").is_file()
    }
    assert missing == set()


def test_every_peer_is_named_or_imported():
    text = "".join(path.read_text("utf-8") for path in programs())
    unused = [
        path.relative_to(FOLDER)
        for path in programs()
        if path.parent.name == "peers"
        and f"{path.parent.parent.name}.peers.{path.stem}" not in text
        and f"{path.parent.parent.name}.peers import {path.stem}" not in text
    ]
    assert unused == []
