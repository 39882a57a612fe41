"""Every docstring example runs, and everything public has a docstring.

The examples use `tf`, `keras`, `np` and the names of their own module without importing them. The
files are parsed with `ast`, so that a broken module fails only its own tests.
"""

import ast
import doctest
import functools
import importlib
import inspect
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

ROOT = Path(__file__).resolve().parent.parent
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Public functions and classes that need no example, and why.
NO_EXAMPLE = {
    "tf_transformer.cli": "the README and tests/cli/ show the command",
}


class Documented(NamedTuple):
    """A module, class, function or method of the package."""

    module: str
    name: str  # "" for the module itself
    path: Path
    line: int
    docstring: str | None

    def __str__(self):
        return f"{self.module}.{self.name}".rstrip(".")

    @property
    def is_public(self):
        return not any(part.startswith("_") for part in self.name.split("."))


def documented_in(path):
    """Return all definitions of a file that can have a docstring, without nested functions."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts).removesuffix(".__init__")

    def visit(node, name):
        line = getattr(node, "lineno", 1)
        yield Documented(module, name, path, line, ast.get_docstring(node, clean=False))
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for child in node.body:
                if isinstance(child, DEFINITIONS):
                    yield from visit(child, f"{name}.{child.name}".lstrip("."))

    return visit(ast.parse(path.read_text("utf-8")), "")


EVERYTHING = [
    item for path in sorted((ROOT / "tf_transformer").rglob("*.py")) for item in documented_in(path)
]
WITH_EXAMPLE = [item for item in EVERYTHING if item.docstring and ">>>" in item.docstring]
PUBLIC = [item for item in EVERYTHING if item.is_public]


load_any = tf.saved_model.load
load_included = functools.lru_cache(load_any)


def load(path):
    """Load a SavedModel, the included one only once: a dozen examples use it."""
    included = Path(path).resolve().is_relative_to(ROOT / "saved_models")
    return (load_included if included else load_any)(str(path))


@pytest.mark.parametrize("item", WITH_EXAMPLE, ids=str)
def test_example_runs(item, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files here
    monkeypatch.setattr(tf.saved_model, "load", load)
    names = vars(importlib.import_module(item.module))
    globs = {"tf": tf, "keras": keras, "np": np, **names}
    example = doctest.DocTestParser().get_doctest(
        item.docstring, globs, str(item), str(item.path), item.line
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = []
    runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).attempted > 0
    assert not report, "".join(report)


@pytest.mark.parametrize("item", PUBLIC, ids=str)
def test_docstring_is_there(item):
    if not overrides_another_library(item):
        assert item.docstring and item.docstring.strip(), f"{item.path}:{item.line}"


@pytest.mark.parametrize(
    "item", [item for item in PUBLIC if item.name and "." not in item.name], ids=str
)
def test_docstring_has_an_example(item):
    folder = ".".join(item.module.split(".")[:2])
    if not {folder, item.module, str(item)} & set(NO_EXAMPLE):
        assert ">>>" in (item.docstring or ""), f"{item.path}:{item.line} has no example"


def test_the_list_of_exceptions_is_in_use():
    known = {str(item) for item in EVERYTHING}
    assert known.issuperset(NO_EXAMPLE)


def overrides_another_library(item):
    """Return whether a method overrides one of Keras or TensorFlow, such as `get_config`."""
    owner, _, method = item.name.rpartition(".")
    if not owner:
        return False
    cls = importlib.import_module(item.module)
    for name in owner.split("."):
        cls = getattr(cls, name)
    return any(
        method in vars(base) and not base.__module__.startswith("tf_transformer")
        for base in inspect.getmro(cls)[1:]
    )
