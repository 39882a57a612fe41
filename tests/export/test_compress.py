"""Recipes carried out: what is made, measured, resumed and refused."""

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from small_run import small_run
from tiny_bert import CONFIG, TOKENS, randomised

from tf_transformer import bert, litert
from tf_transformer.compression.recipes import Distil, Prune, Quantize, Recipe
from tf_transformer.export import chain, compress, load_transformer
from tf_transformer.export.chain import ClassifierTask, TranslatorTask, peak_memory
from tf_transformer.training import FineTuning

TEXTS = ["good film", "bad film", "the good plot", "the bad plot", "a good", "a bad"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder as `finetune` leaves it, and texts."""
    folder = tmp_path_factory.mktemp("classifier")
    model = bert.BertForSequenceClassification({**vars(CONFIG), "labels": ("bad", "good")})
    randomised(model).save_pretrained(folder / "model")
    (folder / "model" / "vocab.txt").write_text("\n".join(TOKENS) + "\n", "utf-8")
    settings = {**vars(FineTuning(max_length=7, accumulate=2)), "learning_rate": 1e-2}
    (folder / "result.json").write_text(json.dumps({"settings": settings}))
    lines = [f"{'good' if 'good' in text else 'bad'}\t{text}\n" for text in TEXTS]
    for part in ("train", "validation", "test"):
        (folder / f"{part}.tsv").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    run = small_run(folder, epochs=1)
    run.train()
    return run


@pytest.fixture(autouse=True)
def measured_little(monkeypatch):
    """Few rounds, and no separate process for the memory of each stage."""
    monkeypatch.setattr(chain, "peak_memory", lambda *given: None)
    seconds_of = chain.seconds_of
    monkeypatch.setattr(chain, "seconds_of", lambda *given: seconds_of(*given, most=3, rounds=1))


def recipe_of(folder, *steps):
    data = {part: str(folder / f"{part}.tsv") for part in ("train", "validation", "test")}
    return Recipe(str(folder), steps, data)


STEPS = Distil(layers=1, epochs=2, hidden_states=0.1), Prune(heads=0.4, units=0.5)


@pytest.mark.slow
def test_a_classifier_step_by_step_and_resumed(trained, tmp_path, monkeypatch):
    steps = *STEPS, Quantize(runtime="litert"), Quantize(dtype="float16")
    recipe, folder = recipe_of(trained, *steps), tmp_path / "smaller"
    results = compress(recipe, folder, verbose=0)
    names = ["0-original", "1-distil", "2-prune", "3-quantize", "4-quantize"]
    assert [stage["name"] for stage in results] == names
    found = sorted(path.name for path in folder.iterdir())
    assert found == [*names, "README.md", "recipe.json", "results.json", "results.png"]
    weights = [stage["weights"] for stage in results]
    assert weights[0] > weights[1] > weights[2] == weights[3] == weights[4]
    table = (folder / "README.md").read_text("utf-8")
    for stage in results:
        assert f"| {stage['name']} | {stage['score']:.1f} | {stage['weights']:,} |" in table
        assert len(stage["seconds"]["1"]) == 1 and stage["seconds"]["32"][0] > 0
    assert results[0]["relative_time"] == {"1": 1.0, "32": 1.0}
    # what was written is what was scored
    inputs = bert.text_inputs(bert.read_tokenizer(trained / "model"), TEXTS, None, 7)
    for stage in results[:3]:
        model = bert.BertForSequenceClassification.from_pretrained(folder / stage["name"] / "model")
        right = np.argmax(model(inputs), -1) == ["good" in text for text in TEXTS]
        assert stage["score"] == pytest.approx(100 * right.mean())
    assert model.config.layer_sizes == ((2, 9),)
    assert litert.load(folder / "3-quantize" / "litert").classify(["good film"])[0]
    assert peak_memory(folder / "3-quantize", "classify", TEXTS) > 2**24
    # the same call measures again if a stage was missing, and otherwise does nothing
    unchanged = (folder / "results.json").stat().st_mtime_ns
    monkeypatch.setattr(ClassifierTask, "train", None)  # would fail
    assert compress(recipe, folder) == results
    assert (folder / "results.json").stat().st_mtime_ns == unchanged
    shutil.rmtree(folder / "3-quantize")
    assert [stage["score"] for stage in compress(recipe, folder)] == [s["score"] for s in results]
    assert (folder / "results.json").stat().st_mtime_ns > unchanged


@pytest.mark.slow
def test_a_translator_that_was_interrupted(run, tmp_path, monkeypatch):
    recipe = Recipe(str(run.folder), (Distil(layers=[1, 1], epochs=1),))
    folder = tmp_path / "smaller"
    export = TranslatorTask.export

    def stopped(self, model, stage, quantize=None):
        if "1-distil" in stage.name:
            raise KeyboardInterrupt
        return export(self, model, stage, quantize)

    with monkeypatch.context() as patch:
        patch.setattr(TranslatorTask, "export", stopped)
        with pytest.raises(KeyboardInterrupt):
            compress(recipe, folder)
    assert (folder / "0-original").is_dir() and not (folder / "1-distil").exists()
    unfinished = folder / "1-distil.unfinished"
    assert list((unfinished / "translations").iterdir())
    seen = [(unfinished / "training" / "history.csv").read_text()]
    apply = Distil.apply

    def applied(self, *given):
        student = apply(self, *given)
        seen.append((unfinished / "training" / "history.csv").read_text())
        return student

    monkeypatch.setattr(Distil, "apply", applied)
    results = compress(recipe, folder)
    assert seen[0] == seen[1]  # trained once
    assert not unfinished.exists()
    assert results[0]["weights"] == results[1]["weights"]
    model, _ = load_transformer(folder / "1-distil" / "saved_model")
    assert any(
        np.abs(after - before).max() > 1e-4
        for after, before in zip(model.get_weights(), run.best_model().get_weights(), strict=True)
    )


class Text(str):
    """A model that says how it was made."""

    count_params = str.__len__


def test_what_comes_after_a_missing_stage_is_made_again(tmp_path, monkeypatch):
    def export(model, stage, quantize):
        (stage / "model").write_text(model)
        return 1.0

    task = SimpleNamespace(
        model=Text("whole"),
        load=lambda stage: Text((stage / "model").read_text()),
        export=export,
        score_name="BLEU",
    )
    monkeypatch.setattr(chain, "_task", lambda *given: task)
    monkeypatch.setattr(chain, "_rehearse", lambda *given: None)
    monkeypatch.setattr(chain, "_measured", lambda _, stages: [stage.name for stage in stages])
    monkeypatch.setattr(chain, "write_report", lambda *given: None)
    made, killed_at = [], [None]

    def apply(self, model, task, folder):
        if self.name == killed_at[0]:
            raise KeyboardInterrupt
        made.append(self.name)
        return Text(f"{model}, {self.name}" if self.name != "quantize" else model)

    for kind in (Distil, Prune, Quantize):
        monkeypatch.setattr(kind, "apply", apply)
    folder = tmp_path / "smaller"
    recipe = Recipe("run", (Distil(layers=(1, 1)), Prune(heads=0.5), Quantize(), Quantize()))
    stages = ["1-distil", "2-prune", "3-quantize", "4-quantize"]
    compress(recipe, folder)
    (folder / "2-prune.unfinished").mkdir()  # killed before it was removed
    compress(recipe, folder)
    assert made == ["distil", "prune", "quantize", "quantize"]
    assert not (folder / "2-prune.unfinished").exists()
    for first, stage in enumerate(stages):
        shutil.rmtree(folder / stage)
        made.clear()
        with monkeypatch.context() as patch:
            patch.setattr(chain, "_measured", lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                compress(recipe, folder)
        assert not (folder / "results.json").exists()
        assert compress(recipe, folder) == ["0-original", *stages]
        assert made == ["distil", "prune", "quantize", "quantize"][first:]
        assert (folder / "4-quantize" / "model").read_text() == "whole, distil, prune"
        assert (folder / "3-quantize" / "model").read_text() == "whole, distil, prune"
    # stopped after the missing stage: those that came from the one before are gone
    shutil.rmtree(folder / "1-distil")
    (folder / "2-prune.unfinished").mkdir()
    killed_at[0] = "prune"
    made.clear()
    with pytest.raises(KeyboardInterrupt):
        compress(recipe, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "0-original",
        "1-distil",
        "recipe.json",
    ]
    killed_at[0] = None
    compress(recipe, folder)
    assert made == ["distil", "prune", "quantize", "quantize"]


@pytest.mark.slow
def test_a_missing_package_is_named_before_anything_is_made(trained, run, tmp_path, monkeypatch):
    lite = Quantize(runtime="litert")
    for package, recipe in (
        ("matplotlib.figure", recipe_of(trained, Quantize())),
        ("ai_edge_litert.interpreter", recipe_of(trained, *STEPS, lite)),
        ("ai_edge_litert.interpreter", Recipe(str(run.folder), (lite,))),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(ImportError, match="pip install -e"):
                compress(recipe, tmp_path / "smaller")
        assert not (tmp_path / "smaller").exists()


@pytest.mark.slow
def test_nothing_is_written_for_bad_input(trained, run, tmp_path):
    folder = tmp_path / "smaller"
    quantize = Quantize()
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    for recipe, place, error, message in (
        (recipe_of(trained, Distil(layers=3)), folder, ValueError, r"steps\[0\], distil: layers: "),
        (recipe_of(trained, Prune(heads=0.8)), folder, ValueError, r"steps\[0\], prune: heads: "),
        (Recipe(str(trained), (quantize,)), folder, ValueError, "data: expected train or set, got"),
        (
            Recipe(str(trained), (quantize,), {"set": "trec-6"}),
            folder,
            ValueError,
            "data: expected the archive that contains the set, got none",
        ),
        (
            Recipe(str(run.folder), (quantize,), {"train": "a"}),
            folder,
            ValueError,
            "data: expected none, since the run has its own",
        ),
        (Recipe("none", (quantize,)), folder, FileNotFoundError, "model: expected the output of"),
        (recipe_of(trained, quantize), other, FileExistsError, "a new folder, .* other content"),
        (recipe_of(trained, quantize), other / "file", FileExistsError, "a new folder, .* other"),
    ):
        with pytest.raises(error, match=message):
            compress(recipe, place)
        assert not folder.exists() and [path.name for path in other.iterdir()] == ["file"]
    shutil.copytree(trained, tmp_path / "exits")
    (tmp_path / "exits" / "result.json").write_text('{"early_exit": {}}')
    with pytest.raises(ValueError, match="model: expected one without exits, got early exit in"):
        compress(recipe_of(tmp_path / "exits", quantize), folder)
    other_classes = tmp_path / "train.tsv"
    other_classes.write_text("yes\tgood\nno\tbad\n" * 20)
    data = {part: str(other_classes) for part in ("train", "validation", "test")}
    with pytest.raises(ValueError, match="data: expected the classes of the model, bad, good, got"):
        compress(Recipe(str(trained), (quantize,), data), folder)


def test_another_recipe_in_the_folder(trained, tmp_path):
    recipe = recipe_of(trained, Quantize(ranges="dynamic"))
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    with pytest.raises(FileExistsError, match="that of the same recipe, .* got another recipe"):
        compress(recipe_of(trained, Quantize()), tmp_path)
