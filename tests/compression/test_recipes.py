"""Recipes: what is read, what is refused, and what the steps cut."""

import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from random_weights import randomize

from tf_transformer import Transformer
from tf_transformer.bert import BertConfig, BertForSequenceClassification
from tf_transformer.compression import Distiller
from tf_transformer.compression.recipes import Distil, Prune, Quantize, Recipe
from tf_transformer.errors import ArgumentError


def classifier(layers=6, heads=4):
    config = BertConfig(19, 8, layers, heads, 12, labels=("a", "b"))
    model = BertForSequenceClassification(config)
    model.build()
    return randomize(model, 1)


def translator():
    model = Transformer((3, 2), 8, 4, 10, 11, 11, 16, 16)
    model.build()
    return randomize(model, 1)


def test_a_file_with_paths_relative_to_it(tmp_path):
    content = {
        "model": "runs/a",
        "data": {"set": "trec-6", "archive": "b.whl"},
        "steps": [
            {"step": "distil", "layers": 3, "learning_rate": 1},
            {"step": "prune", "heads": 0.5, "by": "confidence"},
            {"step": "quantize"},
        ],
    }
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(content))
    recipe = Recipe.read(file)
    assert recipe.model == str(tmp_path / "runs" / "a")
    assert recipe.data == {"set": "trec-6", "archive": str(tmp_path / "b.whl")}
    assert recipe.steps == (
        Distil(layers=3, learning_rate=1),
        Prune(heads=0.5, by="confidence"),
        Quantize(dtype="int8", ranges="static", runtime="tensorflow"),
    )
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize("page", ["compression.md", "compression.zh-CN.md"])
def test_the_recipe_of_the_docs(page):
    text = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
    [content] = re.findall(r"```json\n(.*?)```", text, re.S)
    names = [step.name for step in Recipe.from_dict(json.loads(content)).steps]
    assert names == ["distil", "prune", "quantize"]


PRUNE, DISTIL, QUANTIZE = ({"step": name} for name in ("prune", "distil", "quantize"))


@pytest.mark.parametrize(
    "steps, message",
    [
        ([{"step": "distill"}], r"steps\[0\]: expected one of .*\(did you mean 'distil'\?\)"),
        ([{**PRUNE, "head": 0.5}], r"steps\[0\]: expected one of epochs, .*mean 'heads'\?\)"),
        ([{**PRUNE, "heads": "half"}], "prune: heads: expected a number, got 'half'"),
        ([{**PRUNE, "heads": True}], "heads: expected a number, got True"),
        ([{**PRUNE, "heads": 1}], r"heads: expected a share in \[0, 1\), got 1"),
        ([PRUNE], "heads: expected a share above 0"),
        ([{**PRUNE, "units": 0.1, "by": "confidence"}], "by: expected gradient or ablation, got"),
        ([{**PRUNE, "units": 0.1, "rounds": 0}], "rounds: expected at least 1, got 0"),
        ([DISTIL], "distil: expected a value of layers, got none"),
        ([{**DISTIL, "layers": [1, 2, 3]}], "layers: expected one or two numbers of at least 1"),
        ([{**DISTIL, "layers": [1.5]}], "layers: expected one or two numbers"),
        ([{**DISTIL, "layers": 2, "epochs": 1.5}], "epochs: expected a whole number, got 1.5"),
        ([{**DISTIL, "layers": 2, "temperature": 0}], "temperature: expected a number above 0"),
        ([{**DISTIL, "layers": 2, "soft_targets": 1.1}], r"soft_targets: expected a number in \[0"),
        ([{**DISTIL, "layers": 2, "learning_rate": 0.0}], "learning_rate: expected a positive"),
        ([{**PRUNE, "heads": 0.1, "soft_targets": -1}], r"soft_targets: expected a number in \[0"),
        ([{**QUANTIZE, "dtype": "int4"}], "dtype: expected one of int8, float16, bfloat16, got"),
        ([{**QUANTIZE, "runtime": "litert", "ranges": "static"}], "ranges: expected one of None"),
        ([{**QUANTIZE, "ranges": "fixed"}], "ranges: expected one of static, dynamic, got 'fixed'"),
        ([{**QUANTIZE, "runtime": "lite"}], "runtime: expected one of tensorflow, litert"),
        ([QUANTIZE, {**PRUNE, "heads": 0.5}], r"steps\[0\]: expected quantize as the last step"),
        ([], "steps: expected at least one of distil, prune, quantize, got none"),
        ({}, "steps: expected a list of steps, got {}"),
        ([3], r'steps\[0\]: expected an object with "step", got 3'),
    ],
)
def test_unknown_steps_and_settings(steps, message):
    with pytest.raises(ValueError, match=message):
        Recipe.from_dict({"model": "run", "steps": steps})


def test_other_bad_files(tmp_path):
    file = tmp_path / "recipe.json"
    with pytest.raises(FileNotFoundError, match="recipe: expected a JSON file, got no file"):
        Recipe.read(file)
    file.write_text(json.dumps({"model": "a\0b", "steps": [QUANTIZE]}))
    with pytest.raises(ArgumentError, match=r"recipe: expected paths in .*json, got 'a\\x00b'"):
        Recipe.read(file)
    file.write_text("{")
    with pytest.raises(ValueError, match="recipe: expected JSON in .*recipe.json"):
        Recipe.read(file)
    for content, message in (
        ([], "recipe: expected an object, got "),
        ({"model": 3, "steps": [QUANTIZE]}, "model: expected a string, got 3"),
        ({"model": "a", "step": []}, r"recipe: expected one of model, .*\(did you mean 'steps'\?"),
        ({"model": "a", "steps": [QUANTIZE], "data": {"test": 3}}, "data: expected a string as"),
        ({"model": "a", "steps": [QUANTIZE], "data": {"tests": "a"}}, "mean 'test'"),
    ):
        with pytest.raises(ValueError, match=message):
            Recipe.from_dict(content)


@pytest.mark.parametrize("left, kept", [(3, [1, 3, 5]), (2, [2, 5]), (1, [5]), (6, range(6))])
@pytest.mark.one_of(4)
def test_distil_keeps_layers_evenly_spaced(left, kept):
    model = classifier()
    smaller = Distil(layers=left).rehearse(model)
    for n, before in enumerate(kept):
        np.testing.assert_array_equal(
            smaller.bert.encoder.groups[n].intermediate.kernel,
            model.bert.encoder.groups[before].intermediate.kernel,
        )
    assert len(smaller.bert.encoder.groups) == left


@pytest.mark.slow
def test_distil_of_a_translator():
    smaller = Distil(layers=[2, 1]).rehearse(translator())
    assert smaller.get_config()["num_layers"] == (2, 1)
    with pytest.raises(ValueError, match="layers: expected 2 numbers, for the layers of encoder a"):
        Distil(layers=2).rehearse(translator())
    with pytest.raises(ValueError, match="expected at most 2, the layers of the decoder before th"):
        Distil(layers=[3, 3]).rehearse(translator())
    with pytest.raises(ValueError, match="hidden_states, attention: expected 0, or Bert or a BERT"):
        Distil(layers=[3, 2], hidden_states=0.5).rehearse(translator())


def test_prune_is_rehearsed_with_its_shares():
    smaller = Prune(heads=0.5, units=0.25).rehearse(classifier(2))
    heads, units = zip(*smaller.config.layer_sizes, strict=True)
    assert sum(heads) == 4 and sum(units) == 18
    with pytest.raises(ValueError, match="heads: share: expected at most 0.750, so that each lay"):
        Prune(heads=0.9).rehearse(classifier(2))


class Trainings:
    """A task that keeps what it was asked to train."""

    def __init__(self):
        self.trained = []

    def compile(self, model):
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def examples(self):
        return [({"input_ids": np.array([[2, 7, 3], [2, 8, 3]])}, np.array([0, 1]))]

    def train(self, model, step, folder):
        self.trained.append((model, folder))


@pytest.mark.slow
def test_prune_learns_from_the_model_before_in_every_round(tmp_path):
    model, task = classifier(2), Trainings()
    step = Prune(heads=0.5, rounds=2, temperature=3.0, soft_targets=0.25)
    smaller = step.apply(model, task, tmp_path)
    for n, (learner, folder) in enumerate(task.trained, 1):
        assert isinstance(learner, Distiller) and learner.get_config()["temperature"] == 3.0
        weights = learner.soft_targets, learner.hidden_states, learner.attention
        assert weights == (0.25, 0.0, 0.0)
        assert learner._teacher[0]() is model and folder == tmp_path / f"round-{n}"
    assert len(task.trained) == 2 and learner.student is smaller
    task = Trainings()
    smaller = Prune(heads=0.5, soft_targets=0.0).apply(model, task, tmp_path)
    assert task.trained == [(smaller, tmp_path / "round-1")]
