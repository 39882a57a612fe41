"""Every docstring example runs, everything public has a docstring, everything exported an example.

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
FOLDERS = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "tf_transformer").rglob("__init__.py")
    if path.parent.name != "cli"  # the README and tests/cli/ show the command
)
HOMES = [*FOLDERS, "tf_transformer.distribution"]


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


load_any = tf.saved_model.load
load_included = functools.lru_cache(load_any)


def load(path):
    """Load a SavedModel, the included one only once: a dozen examples use it."""
    included = Path(path).resolve().is_relative_to(ROOT / "saved_models")
    return (load_included if included else load_any)(str(path))


@pytest.mark.one_of(20)
@pytest.mark.parametrize("module", sorted({item.module for item in WITH_EXAMPLE}))
def test_the_examples_of_a_module_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files here
    monkeypatch.setattr(tf.saved_model, "load", load)
    report = []
    for item in (item for item in WITH_EXAMPLE if item.module == module):
        globs = {"tf": tf, "keras": keras, "np": np, **vars(importlib.import_module(module))}
        example = doctest.DocTestParser().get_doctest(
            item.docstring, globs, str(item), str(item.path), item.line
        )
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        runner = doctest.DocTestRunner(verbose=False, optionflags=flags)  # not as pytest -v
        runner.run(example, out=report.append)
        assert runner.summarize(verbose=False).attempted > 0
    assert not report, "".join(report)


def test_everything_public_has_a_docstring():
    without = [
        f"{item.path}:{item.line}"
        for item in EVERYTHING
        if item.is_public and not (item.docstring or "").strip()
        if not overrides_another_library(item)
    ]
    assert not without, without


def test_everything_exported_has_an_example():
    exported = {name for home in HOMES for name in definitions(home)}
    without = [
        f"{item.path}:{item.line}"
        for item in EVERYTHING
        if (item.module, item.name) in exported and ">>>" not in (item.docstring or "")
    ]
    assert not without, without


def definitions(home):
    """Yield (module, name) of the classes and functions that a package exports."""
    package = importlib.import_module(home)
    for name in getattr(package, "__all__", ()):
        exported = getattr(package, name)
        if inspect.isclass(exported) or inspect.isfunction(exported):
            yield exported.__module__, exported.__qualname__


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
