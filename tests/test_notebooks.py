"""The notebooks run from top to bottom, and their stored outputs match their source."""

import importlib
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
pytest.importorskip("nbclient")
import nbformat
from claims import CLAIMS, MIME, RATE, best_rates, verdict

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = [path.stem for path in sorted(FOLDER.glob("[0-9]*.py"))]
RECORDS = sorted((FOLDER / "trainings").glob("*.json"))
# Replaces the cell tagged "parameters": a short run tests the cells, not the quality.
SHORT = {
    "02_train_a_translator": "EPOCHS = 1\nPAIRS = 600",
    "03_tokenizers": "PAIRS = 1500\nSIZES = (2500, 4000)",
    "04_bert": 'PRESET, EPOCHS, CHANGES = "tiny", 1, {}\nLABELS = 8',
}


@pytest.fixture(scope="module")
def make():
    specification = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def cells(notebook):
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_is_in_step_with_its_text(make, name):
    stored = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert cells(stored) == cells(make.read(FOLDER / f"{name}.py")), (
        f"notebooks/{name}.py was changed: run python notebooks/make.py {name}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_has_its_outputs(name):
    stored = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    # Run once, from top to bottom, without errors.
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    kinds = {output.output_type for output in outputs}
    assert "error" not in kinds and "stderr" not in {o.get("name") for o in outputs}
    pictures = [kind for output in outputs for kind in output.get("data", {}) if "image" in kind]
    assert pictures


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_shown_as_they_were_recorded(make, name):
    stored = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    shown = [
        output.data
        for cell in stored.cells
        for output in cell.get("outputs", [])
        if MIME in output.get("data", {})
    ]
    for data in shown:
        found = data[MIME]
        again = verdict(found["claim"], found["outcome"], *found["texts"], **found["values"])
        assert again.record == found
        assert all(len(x) >= 3 for x in found["values"].values() if isinstance(x, list))
        assert data["text/markdown"] == again._repr_mimebundle_()["text/markdown"]


def test_the_pages_of_claims_are_those_of_the_notebooks(make):
    for name, text in make.pages().items():
        assert (FOLDER / name).read_text("utf-8") == text, "run python notebooks/make.py"
    numbers = [record["claim"] for path in make.sources() for record in recorded(make, path)]
    assert len(numbers) == len(set(numbers)), "a claim has two verdicts"
    assert set(CLAIMS) == {f"C{number:02}" for number in range(1, 123)}
    assert set(numbers) == set(CLAIMS), "a claim has no verdict"


def test_every_error_of_the_notes_is_corrected_and_proved(make):
    records = [record for path in make.sources() for record in recorded(make, path)]
    wrong = {record["claim"] for record in records if record["outcome"] == "does not hold"}
    errata = json.loads((FOLDER / "errata.json").read_text("utf-8"))
    assert set(errata) == wrong
    assert all(len(text) == 2 for erratum in errata.values() for text in erratum.values())


def recorded(make, path):
    return make.verdicts(path.with_suffix(".ipynb"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_what_was_trained_beside_the_notebooks_has_three_seeds(record):
    results = json.loads(record.read_text("utf-8"))["results"]
    assert set(results) == set(importlib.import_module(f"trainings.{record.stem}").VARIANTS)
    best = best_rates({variant: seeds["1"].get("loss") for variant, seeds in results.items()})
    for arm, variant in best.items():
        assert sorted(results[variant]) == ["1", "2", "3"]
        tried = [v.partition(RATE) for v in results]
        rates = [float(rate) for name, _, rate in tried if name == arm and rate]
        # The best rate is between others.
        assert not rates or min(rates) < float(variant.partition(RATE)[2]) < max(rates)


def test_every_claim_answers_a_question_and_has_an_interview_sentence(make):
    asked = [number for question in make.QUESTIONS for number in question["claims"]]
    assert sorted(asked) == sorted(CLAIMS) and 50 <= len(make.QUESTIONS) <= 70
    for number, claim in CLAIMS.items():
        english, chinese = claim["interview"]
        assert 1 <= len(re.findall(r"[.!?](?: |$)", english)) <= 2, number
        assert 1 <= len(re.findall("[。！？]", chinese)) <= 2, number
        assert len(english.split()) <= 50 and len(chinese) <= 110, number
        assert re.search("[\u4e00-\u9fff]", claim["claim"][1] + chinese), number


PAIR = ("{x:.1f}", "{x:.1f}")


def test_bad_verdicts():
    answer = ("It holds.", "成立。")
    with pytest.raises(ValueError, match="claim: expected one of claims.json, got 'C123'"):
        verdict("C123", "holds", answer, PAIR, x=1)
    with pytest.raises(ValueError, match="outcome: expected one of holds, holds when, does not"):
        verdict("C02", "true", answer, PAIR, x=1)
    with pytest.raises(ValueError, match="C02: expected all numbers"):
        verdict("C02", "holds", answer, ("{x}", "no number"), x=1)
    with pytest.raises(ValueError, match="C02: expected all numbers"):
        verdict("C02", "holds", answer, ("no number", "no number"))
    with pytest.raises(ValueError, match="C02: expected an answer of at most 20, got 21"):
        verdict("C02", "holds", ("so " * 20 + "long.", "长。"), PAIR, x=1)
    with pytest.raises(ValueError, match="C02: expected at most 2 numbers"):
        verdict("C02", "holds", ("1, 2 and 3.", "三个。"), PAIR, x=1)
    with pytest.raises(ValueError, match="C02: expected the condition in 'It does, they say.'"):
        verdict("C02", "holds when", ("It does, they say.", "有条件时成立。"), PAIR, x=1)
    with pytest.raises(ValueError, match="C02: expected at most 53 words, got 54"):
        verdict("C02", "holds", answer, ("so " * 53 + "{x}", "{x}"), x=1)
    one = verdict("C02", "holds", answer, PAIR, x=[2]).record
    assert one["measured"] == ["2.0", "2.0"] and one["values"] == {"x": [2]}
    spread = verdict("C02", "holds", ("{x.mean:.0f}.", "{x.mean:.0f}。"), PAIR, x=[1, 2, 6]).record
    assert spread["measured"][0] == "3.0 [1.0, 6.0]" and spread["answer"] == ["3.", "3。"]


@pytest.mark.notebook
@pytest.mark.one_of(11)
@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_runs(make, name, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (FOLDER.parent, FOLDER))))
    notebook = make.read(FOLDER / f"{name}.py")
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = SHORT[name]
    make.run(notebook, tmp_path)
    assert list(tmp_path.iterdir()) == []
