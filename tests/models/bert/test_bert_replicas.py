"""BERT models on two replicas of `MirroredStrategy` train as on one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
OTHERS = (
    "Bert",
    "BertForTokenClassification",
    "BertForNextSentencePrediction",
    "BertForQuestionAnswering",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "UniLM",
    "SentenceEncoder",
    "a functional model",
)


def results(folder, *names):
    """The results of some cases of the program, by name."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "bert_replicas_program.py", folder, *names],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert list(found) == list(names)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("BertForPreTraining", "BertWithExits", "a model of a user", "unequal", "towers"),
        pytest.param(OTHERS, marks=pytest.mark.whole),
    ],
)
def test_two_replicas_are_one_device(names, tmp_path):
    for name, (one, two) in results(tmp_path, *names).items():
        assert np.isfinite(one).all() and one[0] != one[1], name
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["finetune", "pretrain"])
def test_the_command_trains(name, tmp_path):
    code, printed, history = results(tmp_path, name)[name]
    assert code in (0, None), printed
    assert len(history.splitlines()) == 2
    assert (tmp_path / name / "model" / "config.json").is_file()
