"""Every public class computes the same after it was copied, saved or loaded, in every way.

What a class cannot do is tested as well, and in the table of docs/training.md.
"""

import copy
import functools
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from copied import CASED, ITEMS, LAYERS, METRICS, PARTS, by_name, inputs_together, together

import tf_transformer
from tf_transformer import bert, compression, training
from tf_transformer.training import (
    FusedAdam,
    GlobalLossScale,
    InverseSquareRootSchedule,
    LayerwiseAdamW,
    WarmUpLinearDecay,
)

LONG = pytest.mark.one_of(10, "long")

pytestmark = pytest.mark.one_of(12)  # of the classes
ROOT = Path(__file__).resolve().parent.parent
# Public classes that are not copied.
NO_OBJECT_TO_COPY = {
    "of a `with` block": ("AttentionPlan",),
    "graphs, whose copy is a SavedModel": (
        "EarlyExitClassifier",
        "GraphBPE",
        "GraphSentencePieceBPE",
        "GraphSentencePieceUnigram",
        "GraphTokenizer",
        "GraphUnigram",
        "GraphWordPiece",
        "MaskFiller",
        "QuestionAnswerer",
        "TextClassifier",
        "TextEncoder",
        "TextGenerator",
        "TokenClassifier",
        "TranslationTokenizer",
        "Translator",
    ),
    "hold models": ("Ensemble", "Tokenizer"),
    "of a run": (
        "BestWeights",
        "ExitPoint",
        "FineTuning",
        "LanguageModelPreset",
        "LanguageModelRun",
        "LastWeights",
        "MovingAverage",
        "Preset",
        "PretrainingPreset",
        "PretrainingRun",
        "ResumeCheckpoint",
        "Run",
        "StopOnNaN",
        "TrainingRun",
    ),
}
FITTED = {
    "FusedAdam": lambda: FusedAdam(InverseSquareRootSchedule(8, 5), use_ema=True),
    "LayerwiseAdamW": lambda: LayerwiseAdamW(WarmUpLinearDecay(0.5, 5, 50), layer_decay=0.5),
    "GlobalLossScale": lambda: GlobalLossScale(FusedAdam(0.1), initial_scale=8.0),
}


@functools.cache
def original(name):
    """An object and its numbers, which the tests must not change."""
    made = ITEMS[name].make()
    return made, ITEMS[name].numbers(made)


def same(got, expected, tolerance=0.0):
    """Bit by bit, unless another computation gave the numbers."""
    flat, wanted = tf.nest.flatten(got), tf.nest.flatten(expected)
    assert len(flat) == len(wanted)
    for one, other in zip(flat, wanted, strict=True):
        if isinstance(one, str) or not tolerance:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def values(made):
    return [variable.numpy() for variable in made.variables]


def fitted(name):
    """A model after a step with an optimizer."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5), keras.layers.Dense(2)])
    model.compile(FITTED[name](), "mse", jit_compile=False)
    model.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    return model


@pytest.fixture(scope="module")
def selected(request):
    """The classes of the tests that run, so that nothing is made for the others."""
    cases = [getattr(item, "callspec", None) for item in request.session.items]
    names = {case.params.get("name") for case in cases if case is not None}
    return names | {next(iter(CASED))}  # `whole` needs one


@pytest.fixture(scope="module")
def whole(selected):
    return together({name: original(name)[0] for name in CASED if name in selected})


def export(model, folder):
    """`model.export`, without gradients: saving those would take most of the time."""
    specs = {name: tf.TensorSpec(x.shape, x.dtype, name) for name, x in model.input.items()}
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", model.__call__, [specs])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    archive.write_out(folder, options, verbose=False)


@pytest.fixture(scope="module")
def fitted_models():
    return {name: fitted(name) for name in FITTED}


@pytest.fixture(scope="module")
def elsewhere(selected, whole, fitted_models, tmp_path_factory):
    """What a new process computes with what was saved here."""
    folder = tmp_path_factory.mktemp("copies")
    (folder / "inputs.pickle").write_bytes(pickle.dumps(inputs_together(selected)))
    whole.save(folder / "together.keras")
    export(whole, folder / "exported")
    for name, model in fitted_models.items():
        model.save(folder / f"fitted-{name}.keras")
    for name in (ITEMS.keys() - FITTED) & selected:
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(original(name)[0]))
    program = ROOT / "tests" / "support" / "copies_program.py"
    done = subprocess.run(
        [sys.executable, program, folder],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads((folder / "report.pickle").read_bytes())


def numbers(name, made):
    return ITEMS[name].numbers(made)


@pytest.mark.parametrize("name", ITEMS)
def test_deepcopy(name):
    made, expected = original(name)
    if name in FITTED:
        with pytest.raises(ValueError, match="^optimizer: expected one that is not built"):
            copy.deepcopy(made)
        made = FITTED[name]()
        assert copy.deepcopy(made).get_config() == made.get_config()
    elif name in METRICS:
        assert float(expected) > 0
        same(numbers(name, copy.deepcopy(made)), METRICS[name])
    else:
        same(numbers(name, copy.deepcopy(made)), expected)


@LONG
@pytest.mark.parametrize("name", sorted(ITEMS.keys() - FITTED))
def test_pickled_into_another_process(name, elsewhere):
    expected = METRICS[name] if name in METRICS else original(name)[1]
    same(elsewhere["pickle"][name], expected)


@pytest.mark.parametrize("name", CASED)
def test_tensorflow_checkpoint(name, tmp_path):
    made, expected = original(name)
    path = tf.train.Checkpoint(model=made).save(tmp_path / "model")
    fresh = CASED[name].make(name=name)
    status = tf.train.Checkpoint(model=fresh).restore(path)
    same(numbers(name, fresh), expected)
    status.assert_consumed()
    same(values(fresh), values(made))
    stored = sum("VARIABLE_VALUE" in entry for entry, _ in tf.train.list_variables(path))
    assert stored == len(made.variables) + 1  # and how often it was saved


@pytest.mark.parametrize("name", FITTED)
def test_tensorflow_checkpoint_with_an_optimizer(name, fitted_models, tmp_path):
    model = fitted_models[name]
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "model")
    other = fitted(name)
    other.fit(np.ones((2, 3)), np.zeros((2, 2)), verbose=0)
    status = tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    status.assert_consumed()
    same(values(other), values(model))
    same(values(other.optimizer), values(model.optimizer))


def test_metrics_are_no_objects_of_tensorflow():
    with pytest.raises(ValueError, match="trackable object"):
        tf.train.Checkpoint(metric=original("MaskedAccuracy")[0])


@LONG
@pytest.mark.parametrize("name", CASED)
def test_keras_file_in_another_process(name, elsewhere):
    same(elsewhere["keras"][name], original(name)[1], 1e-6)


@LONG
@pytest.mark.parametrize("name", FITTED)
def test_optimizer_in_a_keras_file_in_another_process(name, elsewhere, fitted_models):
    same(elsewhere["fitted"][name], values(fitted_models[name].optimizer))


@pytest.fixture(scope="module")
def with_loaded_weights(selected, whole, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "together.weights.h5"
    whole.save_weights(path)
    fresh = together({name: CASED[name].make(name=name) for name in CASED if name in selected})
    fresh.load_weights(path)
    return fresh


@pytest.mark.parametrize("name", CASED)
def test_weights_file(name, with_loaded_weights):
    same(numbers(name, with_loaded_weights.get_layer(name)), original(name)[1])


@LONG
@pytest.mark.parametrize("name", CASED)
def test_exported_with_a_functional_model(name, elsewhere):
    got = elsewhere["export"][name]
    same(got, original(name)[1], 1e-5)


@pytest.fixture(scope="module")
def outputs(selected, whole):
    return by_name(whole(tf.nest.map_structure(tf.constant, inputs_together(selected))))


@pytest.mark.parametrize("name", CASED)
def test_in_a_functional_model(name, outputs):
    same(outputs[name], original(name)[1], 1e-6)


@LONG
@pytest.mark.parametrize("name", CASED)
def test_on_two_devices(name, elsewhere):
    if name == "TwoTowers":
        return  # its loss depends on the other texts of a batch
    same(elsewhere["mirrored"][name], original(name)[1], 1e-5)


@pytest.mark.parametrize("name", CASED)
def test_mixed_precision(name):
    made, expected = original(name)
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half = CASED[name].make()
        numbers(name, half)
    finally:
        keras.config.set_dtype_policy(policy)
    half.set_weights(made.get_weights())
    got = [tf.cast(x, y.dtype) for x, y in zip(numbers(name, half), expected, strict=True)]
    same(got, expected, 0.1)


@pytest.mark.parametrize("name", [*LAYERS, "Transformer", "LanguageModel"])  # BERTs: docs/masks.md
def test_keras_masks(name):
    """Tokens at the end that a Keras mask blocks change nothing before them."""
    made, case = original(name)[0], CASED[name]
    tokens = {key: x for key, x in case.calls[0].items() if "mask" not in key and key != "tokens"}
    *_, last = tf.nest.flatten(next(iter(tokens.values())))  # of the output's length

    def longer(array):
        tensor = tf.constant(np.concatenate([array, array[:, :1], array[:, :1]], 1))
        tensor._keras_mask = tf.sequence_mask([array.shape[1]] * 2, tensor.shape[1])
        return tensor

    expected, *_ = case.apply(made, tf.nest.map_structure(tf.constant, tokens))
    found, *_ = case.apply(made, tf.nest.map_structure(longer, tokens))
    same(found[:, : last.shape[1]], expected, 1e-5)
    same(found._keras_mask, longer(last)._keras_mask)


# The rows of the table in docs/training.md, and what holds them.
WAYS = {
    "`copy.deepcopy`, `pickle`, also into another process": (
        test_deepcopy,
        test_pickled_into_another_process,
    ),
    "`.keras`, loaded in another process": (
        test_keras_file_in_another_process,
        test_optimizer_in_a_keras_file_in_another_process,
    ),
    "`tf.train.Checkpoint`": (
        test_tensorflow_checkpoint,
        test_tensorflow_checkpoint_with_an_optimizer,
        test_metrics_are_no_objects_of_tensorflow,
    ),
    "`.weights.h5`": (test_weights_file,),
    "`export`, in a functional model": (
        test_exported_with_a_functional_model,
        test_in_a_functional_model,
    ),
    "`MirroredStrategy`": (test_on_two_devices,),
    "[Keras masks](masks.md)": (test_keras_masks,),
    "`mixed_float16`": (test_mixed_precision,),
}


def test_the_docs_list_every_way():
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    [_, section] = page.split("\n## Copies and files\n")
    rows = [
        line.split(" | ")[0].removeprefix("| ") for line in section.split("\n\n")[1].splitlines()
    ]
    assert rows[2:] == list(WAYS)
    here = {name for name in globals() if name.startswith("test_")}
    about = {test.__name__ for tests in WAYS.values() for test in tests}
    assert here - about == {"test_no_public_class_is_left_out", "test_the_docs_list_every_way"}


def test_no_public_class_is_left_out():
    public = {
        name
        for home in (tf_transformer, bert, training, compression)
        for name in home.__all__
        if inspect.isclass(getattr(home, name))
    }
    parts = {part for _, *others in PARTS.values() for part in others}
    others = {name for names in NO_OBJECT_TO_COPY.values() for name in names}
    assert public == ITEMS.keys() | parts | others
