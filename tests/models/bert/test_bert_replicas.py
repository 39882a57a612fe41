"""BERT models on two replicas of `MirroredStrategy` train as on one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]


def test_two_replicas_are_one_device(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "bert_replicas_program.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["models"]) == 14
    for name, (one, two) in report["models"].items():
        assert np.isfinite(one).all() and one[0] != one[1], name
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5, err_msg=name)
    for code, printed, history in report["commands"]:
        assert code in (0, None), printed
        assert len(history.splitlines()) == 2
