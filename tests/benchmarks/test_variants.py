"""The comparison of variants keeps each finished training and trains only what is missing."""

import argparse
import json
import sys

import pytest

from benchmarks.translation import variants

KEYS = ("bleu", "2x_bleu", "4x_bleu", "loss", "2x_loss", "4x_loss")


@pytest.fixture
def trainings(tmp_path, monkeypatch):
    """The list of trainings that ran; the second one of them fails once."""
    ran = []

    def trained(folder, name, seed, budget):
        ran.append((name, seed))
        if len(ran) == 2:
            raise KeyboardInterrupt
        result = dict.fromkeys(KEYS, float(seed))
        return {**result, "weights": 7, "tokens_per_second": 3.0, "peak_mib": 2.0}

    monkeypatch.setattr(variants, "trained", trained)
    monkeypatch.setattr(variants, "SCORES", tmp_path)
    monkeypatch.setattr(variants, "KEPT", tmp_path / "variants.json")
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    return ran


def run(*arguments):
    variants.main(argparse.ArgumentParser(), ["folder", "--seeds", "2", *arguments])


def test_a_stopped_comparison_goes_on(trainings, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run("--only", "ALiBi")
    assert list(json.loads((tmp_path / "variants.json").read_text())["results"]) == ["ALiBi"]
    first, second = trainings
    run("--only", "ALiBi")
    assert trainings == [first, second, second]  # the finished one is kept
    run("--only", "pre-norm, 6 layers")
    assert len(trainings) == 5
    table = (tmp_path / "variants.md").read_text()
    assert "| ALiBi | 1.50 (1.00 to 2.00) |" in table and "| pre-norm, 6 layers |" in table
    assert (tmp_path / "variants.png").is_file()


def test_another_budget_or_an_unknown_variant_is_refused(trainings):
    variants.KEPT.write_text(json.dumps({"budget": {"preset": "small", "epochs": 3}}))
    with pytest.raises(SystemExit, match="expected those of .*'epochs': 3.*, got .*'epochs': 10"):
        run("--only", "ALiBi")
    with pytest.raises(SystemExit):
        run("--only", "Alibi")
    assert trainings == []
