"""Checkpoints: complete or not there, checked, the last ones kept."""

import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import FusedAdam, GlobalLossScale
from tf_transformer.training import BestWeights, ResumeCheckpoint

pytestmark = pytest.mark.one_of(10, "runs")


def model(width=3, dtype="float32"):
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(2, dtype=dtype)])
    optimizer = FusedAdam(0.1)
    if dtype == "mixed_float16":
        optimizer = GlobalLossScale(optimizer, initial_scale=2.0, dynamic_growth_steps=2)
    model.compile(optimizer, "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def checkpoint(folder, model, **options):
    found = ResumeCheckpoint(folder, BestWeights("unused.weights.h5"), **options)
    found.set_model(model)
    return found


def values(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(tf.cast(v.value, tf.float32)) for v in variables]


def saved_twice(folder, **options):
    """A checkpoint after the first and the second epoch, and the values in both."""
    one, kept = model(**options), []
    callback = checkpoint(folder, one)
    x = np.arange(6.0).reshape(2, 3)
    for epoch in range(2):
        one.fit(x, np.ones((2, 2)), verbose=0)
        callback.best.best, callback.best.wait = 3.0 - epoch, epoch
        callback.on_epoch_end(epoch)
        kept.append(values(one))
    return kept


@pytest.mark.one_of(6)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_float16"])
def test_everything_comes_back(tmp_path, dtype):
    _, newest = saved_twice(tmp_path, dtype=dtype)
    other = model(dtype=dtype)
    callback = checkpoint(tmp_path, other)
    assert callback.restore(other) == (2, 0)
    assert (callback.best.best, callback.best.wait) == (2.0, 1)
    for found, expected in zip(values(other), newest, strict=True):
        np.testing.assert_array_equal(found, expected)
    if dtype == "mixed_float16":
        assert float(other.optimizer.dynamic_scale) == 4.0


def test_the_newest_are_kept(tmp_path):
    one = model()
    callback = checkpoint(tmp_path, one, keep=3)
    for epoch in (8, 9, 10, 99, 100):
        callback.on_epoch_end(epoch)
    names = [path.name for path in callback.paths]
    assert names == [f"epoch-{n:05}-step-00000000.npz" for n in (11, 100, 101)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.fault
@pytest.mark.parametrize("damage", ["torn", "empty", "flipped", "other values"])
@pytest.mark.one_of(4)
def test_the_one_before_a_damaged_one_is_used(tmp_path, capsys, damage):
    before, _ = saved_twice(tmp_path)
    path = tmp_path / "epoch-00002-step-00000000.npz"
    content = bytearray(path.read_bytes())
    if damage == "torn":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = b""
    elif damage == "flipped":
        content[content.index(np.float32(values_at(path)[0, 0]).tobytes())] ^= 1
    path.write_bytes(content)
    if damage == "other values":  # a sound file, but not what was saved
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **{**arrays, "0000": arrays["0000"] + 1})
    other = model()
    assert checkpoint(tmp_path, other).restore(other) == (1, 0)
    for found, expected in zip(values(other), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert f"{path}.damaged: expected a complete checkpoint, got a" in capsys.readouterr().err
    assert not path.exists() and path.with_name(f"{path.name}.damaged").exists()


def values_at(path):
    with np.load(path) as file:
        return file["0000"]


@pytest.mark.fault
@pytest.mark.slow
def test_any_flipped_bit_is_found_or_harmless(tmp_path):
    before, newest = saved_twice(tmp_path / "whole")
    name = "epoch-00002-step-00000000.npz"
    whole = (tmp_path / "whole" / name).read_bytes()
    rng, outcomes = random.Random(7), set()
    for trial in range(60):
        folder = tmp_path / str(trial)
        shutil.copytree(tmp_path / "whole", folder)
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(flipped)
        other = model()
        position = checkpoint(folder, other).restore(other)
        outcomes.add(position)
        for found, expected in zip(
            values(other), newest if position == (2, 0) else before, strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    assert (1, 0) in outcomes


@pytest.mark.fault
def test_damaged_ones_only_and_another_model(tmp_path):
    saved_twice(tmp_path)
    other = model(width=5)
    with pytest.raises(ValueError, match="expected the checkpoint of a model with .* of the same"):
        checkpoint(tmp_path, other).restore(other)
    for path in tmp_path.iterdir():
        path.write_bytes(b"PK")
    with pytest.raises(ValueError, match="expected an intact checkpoint, got damaged files only"):
        checkpoint(tmp_path, model()).restore(model())


def test_bad_settings():
    with pytest.raises(ValueError, match="keep: expected at least 1, got 0"):
        ResumeCheckpoint("x", None, keep=0)
    with pytest.raises(ValueError, match="seconds: expected at least 0, got -1"):
        ResumeCheckpoint("x", None, seconds=-1)
