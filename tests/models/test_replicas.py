"""One and two replicas give the same loss and the same step, even if padding is uneven."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.one_of(10, "long")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report():
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "tests" / "support" / "replicas_program.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["replicas"] == 2
    return report


def test_fit_takes_the_same_step(report):
    one, two = report["one"]["fit"], report["two"]["fit"]
    moved = 0
    for step, other in zip(one["steps"], two["steps"], strict=True):
        np.testing.assert_allclose(other, step, rtol=1e-4, atol=1e-6)
        moved += np.any(np.abs(step) > 1e-3)
    assert moved > 10


def test_fused_adam_takes_the_same_steps(report):
    one, two = report["one"]["fused_adam"], report["two"]["fused_adam"]
    assert one[0] == two[0] == 3  # steps
    for state, other in zip(one, two, strict=True):
        np.testing.assert_allclose(other, state, rtol=1e-3, atol=1e-6)


@pytest.mark.fault
def test_an_overflow_on_one_replica_is_skipped_on_both(report):
    """Keras's own loss scale asks the first replica only: all weights become NaN."""
    one, two = report["one"]["overflow"], report["two"]["overflow"]
    assert one[0] == two[0] == 32.0  # halved once
    for weight, other in zip(one, two, strict=True):
        np.testing.assert_allclose(other, weight, rtol=1e-3)


def test_fit_reports_the_same_loss_and_accuracy(report):
    one, two = report["one"]["fit"], report["two"]["fit"]
    np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-5)
    np.testing.assert_allclose(two["accuracy"], one["accuracy"], rtol=1e-6)
    np.testing.assert_allclose(two["token_loss"], one["token_loss"], rtol=1e-6)
    np.testing.assert_allclose(one["token_loss"], one["loss"], rtol=1e-6)  # a single batch


@pytest.mark.parametrize("labels", ["uneven", "one_token", "no_token"])
def test_the_loss_is_the_same(report, labels):
    np.testing.assert_allclose(report["two"][labels], report["one"][labels], rtol=1e-5)
    assert (report["one"][labels] == 0) == (labels == "no_token")
