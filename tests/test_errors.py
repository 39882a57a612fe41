"""Errors about arguments keep their type and parts wherever they pass."""

import copy
import multiprocessing
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.errors import (
    ArgumentError,
    ExistingFileError,
    MissingFileError,
    is_number,
)
from tf_transformer.functional.tensors import check_range
from tf_transformer.tokenizers.tokenizer_file import UnsupportedPart
from tf_transformer.training import PRESETS, FineTuning

PARTS = ("ids", "integers", "float32", "Cast them.", None)
MESSAGE = "ids: expected integers, got float32. Cast them."


class Refusing(keras.layers.Layer):
    """Raises in `call`, in the way that layers of the library do."""

    def call(self, x):
        raise ArgumentError(*PARTS)


class Wrapped(keras.Model):
    """A model around it."""

    def __init__(self):
        super().__init__()
        self.layer = Refusing()

    def call(self, x):
        return self.layer(x)


def fitted(x):
    model = Wrapped()
    model.compile("sgd", "mse")
    model.fit(x, x, verbose=0)


@tf.function
def looped(x):
    for _ in tf.range(2):  # converted by AutoGraph
        x = Refusing()(x)
    return x


@pytest.mark.parametrize(
    "call",
    [
        Refusing(),
        Wrapped(),
        fitted,
        lambda x: Wrapped().predict(x, verbose=0),
        lambda x: Refusing()(keras.Input((3,))),
        lambda x: keras.Sequential([keras.Input((3,)), Refusing()]),
        tf.function(Wrapped()),
        tf.function(Wrapped(), jit_compile=True),
        looped,
        lambda x: tf.map_fn(lambda row: Refusing()(row[None]), x),
        lambda x: tf.data.Dataset.from_tensors(x).map(lambda x: looped(x)),
    ],
    ids=[
        "layer",
        "model",
        "fit",
        "predict",
        "functional",
        "sequential",
        "graph",
        "xla",
        "autograph",
        "map_fn",
        "data",
    ],
)
def test_an_error_in_a_layer_stays_whole(call):
    with pytest.raises(ArgumentError) as caught:
        call(tf.ones((2, 3)))
    assert type(caught.value) is ArgumentError
    assert caught.value.args == PARTS and str(caught.value) == MESSAGE
    assert [getattr(caught.value, name) for name in ("argument", "expected", "got")] == [*PARTS[:3]]
    assert (caught.value.remedy, caught.value.place) == PARTS[3:]


@pytest.mark.parametrize(
    "kind", [ArgumentError, MissingFileError, ExistingFileError, UnsupportedPart]
)
@pytest.mark.parametrize(
    "copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy, lambda e: e]
)
def test_copies_are_equal(kind, copied):
    error = copied(kind("path", "a file", got=tf.ones(3), place="runs/a"))
    assert type(error) is kind and error.argument == "path" and error.place == "runs/a"
    assert str(error) == f"runs/a: expected a file, got {tf.ones(3)}."
    assert isinstance(error, ValueError) and kind("a", "b").args == ("a", "b", "", None, None)


def test_files_are_of_both_kinds():
    assert issubclass(MissingFileError, FileNotFoundError) and issubclass(
        ExistingFileError, FileExistsError
    )
    assert MissingFileError("path", "a file", "none").errno is None


def refuse(number):
    raise ArgumentError("number", "0", number)


@pytest.mark.slow
def test_from_another_process():
    refused = pytest.raises(ArgumentError, match=r"^number: expected 0, got 3\.$")
    with multiprocessing.get_context("spawn").Pool(1) as pool, refused as caught:
        pool.map(refuse, [3])
    assert caught.value.argument == "number"


def test_the_cause_stays():
    with pytest.raises(ArgumentError) as caught:
        try:
            int("three")
        except ValueError as error:
            raise ArgumentError("number", "an int", "'three'") from error
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_number_is_finite_and_fits_into_a_float():
    for number in (0, -3, 0.5, np.float32(2.0), np.int8(7), 1.7e308):
        assert is_number(number)
    for other in (True, "1", None, float("nan"), float("inf"), -float("inf"), 10**400, 1j):
        assert not is_number(other)
    with pytest.raises(ArgumentError, match="length_penalty: expected at least 0, got 1000"):
        check_range("length_penalty", 10**400, 0.0)
    with pytest.raises(ArgumentError, match="learning_rate: expected a number, got inf"):
        FineTuning(learning_rate=float("inf"))
    with pytest.raises(ArgumentError, match=r"rate: expected a number in \[0, 1\), got 65536"):
        PRESETS["tiny"].with_changes({"rate": 65536})


def test_a_message_needs_what_was_expected_only():
    assert str(ArgumentError("a, b", "one of them")) == "a, b: expected one of them."
    assert str(ArgumentError("a", "more", remedy="See b.")) == "a: expected more. See b."
