"""The files of docs/cluster.md start every worker with its own TF_CONFIG."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tf_transformer.distribution import _task

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["cluster.md", "cluster.zh-CN.md"]
STUBS = {
    "scontrol": 'printf "a\\nb\\nc\\nd\\n"',
    "srun": 'for n in 0 1 2 3; do SLURM_PROCID=$n "$@"; done',
    "tf-transformer": 'echo "$TF_CONFIG" "|" "$@"',
}


@pytest.fixture
def run(tmp_path):
    """Run a script with commands that say what they were given: for each worker, its lines."""
    for name, content in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{content}\n")
        (tmp_path / name).chmod(0o755)

    def run(script, **variables):
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", script],
            env={"PATH": path, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.split(" | ") for line in done.stdout.splitlines()]

    return run


def file(page, name):
    text = (DOCS / page).read_text("utf-8")
    [content] = re.findall(rf"<!-- file: {name} -->\n```\w+\n(.*?)```", text, re.S)
    return content


NEW = "train --prepared /shared/en-de --preset base --output /shared/runs/en-de"


@pytest.mark.parametrize("page", PAGES)
def test_slurm(page, run, tmp_path):
    script = file(page, "slurm")
    lines = run(script, SLURM_JOB_NODELIST="[a-d]")
    for index, (config, command) in enumerate(lines):
        assert _task(config) == (index, 4) and command == NEW
        assert json.loads(config)["cluster"]["worker"] == [f"{name}:2222" for name in "abcd"]
    assert len(lines) == 4
    (tmp_path / "run.json").touch()
    resumed = run(script.replace("/shared/runs/en-de", str(tmp_path)), SLURM_JOB_NODELIST="x")
    assert {command for _, command in resumed} == {f"train --resume {tmp_path}"}


@pytest.mark.parametrize("page", PAGES)
def test_kubernetes(page, run):
    service, job = yaml.safe_load_all(file(page, "kubernetes"))
    name, pods = service["metadata"]["name"], job["spec"]["template"]["spec"]
    assert service["kind"] == "Service" and service["spec"]["clusterIP"] == "None"
    assert job["kind"] == "Job" and job["metadata"]["name"] == name == pods["subdomain"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    [container] = pods["containers"]
    assert container["command"] == ["bash", "-c"]
    for index in range(4):
        [[config, command]] = run(*container["args"], JOB_COMPLETION_INDEX=str(index))
        assert _task(config) == (index, 4) and command == NEW
        assert json.loads(config)["cluster"]["worker"][index] == f"{name}-{index}.{name}:2222"


@pytest.mark.parametrize("page", PAGES)
def test_by_hand(page, run):
    text = (DOCS / page).read_text("utf-8")
    [script] = re.findall(r"```bash\n(export TF_CONFIG.*?)```", text, re.S)
    [[config, command]] = run(script)
    assert _task(config) == (0, 2) and command == NEW
