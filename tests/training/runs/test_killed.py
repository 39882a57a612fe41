"""A training that is killed again and again ends like one that was not, bit by bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.whole)])
def test_killed_and_resumed_equals_straight_through(tmp_path, kills):
    folders = [str(SUPPORT.parents[1]), str(SUPPORT)]
    done = subprocess.run(
        [sys.executable, SUPPORT / "killed_program.py", tmp_path, str(kills), "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == kills and found["steps with repetitions"] >= found["steps"] >= 64
    assert found["other losses"] == 0
    assert found["weights equal"] and found["history equal"] and found["left over"] == []
    assert found["inside a save"] >= kills / 5
