"""The public names of the package, read from its source: TensorFlow is not imported."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def modules():
    """Return the public modules, each of which gets a page.

    Returns:
        list of str: the folders of the package that export names, and five more.

    Example:
        >>> modules()[:2]
        ['tf_transformer.architectures', 'tf_transformer.bert']
    """
    folders = (path.parent.name for path in (ROOT / "tf_transformer").glob("*/__init__.py"))
    others = ("architectures", "bert", "compression.recipes", "distribution", "models.hugging_face")
    names = sorted([*folders, *others])
    return [f"tf_transformer.{name}" for name in names if public_names(f"tf_transformer.{name}")]


def public_names(module):
    """Return what a module exports.

    Args:
        module: str, a dotted name such as "tf_transformer.layers".

    Returns:
        dict of each exported name to the dotted name of its definition.

    Example:
        >>> public_names("tf_transformer.models")["Transformer"]
        'tf_transformer.models.transformer.Transformer'
    """
    if module == "tf_transformer.bert":  # exports all of this module
        module = "tf_transformer.models.bert"
    if module == "tf_transformer":
        homes = _value(module, "_HOMES")
        return {
            name: _definition(f"{module}.{home}", name)
            for home, names in homes.items()
            for name in names.split()
        }
    names = _value(module, "_EXPORTS") or _value(module, "__all__") or ()
    return {name: _definition(module, name) for name in sorted(names)}


def docstring(place):
    """Return the docstring of a module, or of a function or class in one.

    Args:
        place: str, a dotted name.

    Returns:
        str, "" where there is none.

    Example:
        >>> docstring("tf_transformer.models")
        'Complete models.'
    """
    if place == "tf_transformer" or place in modules():
        return ast.get_docstring(_tree(place))
    module, _, name = place.rpartition(".")
    found = [node for node in _tree(module).body if getattr(node, "name", None) == name]
    return (found and ast.get_docstring(found[0])) or ""


@functools.cache
def _tree(module):
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def _value(module, name):
    """Return what a module assigns to a name, None if it does not."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            try:
                return ast.literal_eval(node.value)
            except ValueError:  # `sorted(_EXPORTS)`
                return None
    return None


def _definition(module, name):
    """Follow the imports of a name to where it is defined."""
    lazy = _value(module, "_EXPORTS")
    if lazy:
        return f"{module}.{lazy[name]}.{name}"
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _definition(node.module, name)
    return f"{module}.{name}"
