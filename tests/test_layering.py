"""The import direction between folders, and rules for the names and sizes of files."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tf_transformer"

# A row may import itself and the rows that it names, all of which are above it. A subfolder
# ("training.runs") may also import what its folder may import. Naming another folder allows all of
# its subfolders.
MAY_IMPORT = {
    "errors": "",  # every row may import it
    "lazy": "",
    "json_text": "",
    "data.files": "",
    "tokenizers": "lazy json_text data.files",
    "data": "lazy json_text data.files tokenizers",
    "functional": "",
    "functional.attention": "functional",
    "distribution": "data functional",
    "layers": "json_text tokenizers data functional",
    "models": "json_text tokenizers data distribution functional layers",
    "architectures": "models",
    "bert": "models",
    "training": "json_text tokenizers data distribution functional layers models",
    "training.runs": "training",
    "generation": "tokenizers data functional layers models",
    "compression": "json_text tokenizers data distribution functional layers models",
    "litert": "lazy json_text tokenizers",
    "export": "json_text tokenizers data functional layers models training generation"
    " compression litert",
    "export.translation": "export",
    "export.chain": "export export.translation",
    "visualize": "tokenizers data functional layers models training export",
    "serving": "export",
    "cli": "tokenizers data distribution functional layers models training generation compression"
    " visualize litert export serving",
    "__main__": "cli",
}
EVERYTHING = "the whole package"
MOST_LINES = 500
VAGUE_NAMES = {"utils", "helpers", "common"}


def python_files(root):
    return sorted(root.rglob("*.py"))


def home(parts):
    """Return the row of the table for a module: its subfolder, or else its folder."""
    if len(parts) == 1:
        return EVERYTHING
    room = ".".join(parts[1:3])
    return room if room in MAY_IMPORT else parts[1]


def imported_homes(tree, module):
    """Yield `(line, home)` for every import in a file, also inside functions.

    `module` is the file's dotted name as a list, with "__init__" kept.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == PACKAGE:
                    yield node.lineno, home(parts)
        elif isinstance(node, ast.ImportFrom):
            base = module[: -node.level] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            if base == [PACKAGE]:  # from tf_transformer import: a folder or a lazy name
                for alias in node.names:
                    if alias.name != "__version__":
                        known = alias.name in MAY_IMPORT
                        yield node.lineno, alias.name if known else EVERYTHING
            elif base[0] == PACKAGE:
                yield node.lineno, home(base)
        elif isinstance(node, ast.Call) and called_name(node) in ("import_module", "__import__"):
            parts = spelled_out(node, module)
            if parts[0] == PACKAGE:
                yield node.lineno, home(parts)


def called_name(call):
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def spelled_out(call, module):
    """Return the dotted name in an importlib call, as far as the source shows it.

    A name that does not appear in the source counts as the whole package.
    """
    asked = call.args[0] if call.args else None
    shown = asked.values if isinstance(asked, ast.JoinedStr) else [asked]
    text = ""
    for part in shown:
        if isinstance(part, ast.Constant):
            text += part.value
        elif isinstance(part, ast.FormattedValue) and is_own_name(part.value) and not text:
            text += ".".join(module if module[-1] != "__init__" else module[:-1])
        else:
            break
    level = len(text) - len(text.lstrip("."))
    if level:
        return [*module[:-level], *text[level:].split(".")]
    return text.rstrip(".").split(".") if text else [PACKAGE]


def is_own_name(node):
    return isinstance(node, ast.Name) and node.id in ("__name__", "__package__")


def may_import(importer):
    """Return all rows that a row may import: itself, those it names, and those of its folder."""
    folder, _, room = importer.partition(".")
    named = {*MAY_IMPORT[importer].split(), *(MAY_IMPORT[folder].split() if room else ())}
    rooms = {row for row in MAY_IMPORT if row.split(".")[0] in named - {folder}}
    allowed = {importer, "errors"} | named | rooms
    return allowed | {EVERYTHING} if importer in ("cli", "lazy") else allowed


def violations(root):
    """Return forbidden imports in the package at `root`, as readable lines."""
    found = []
    for path in python_files(root):
        module = [PACKAGE, *path.relative_to(root).with_suffix("").parts]
        importer = home(module)
        if importer == "__init__":
            continue  # the package's own __init__ loads each name on first use
        place = path.relative_to(root)
        if importer not in MAY_IMPORT:
            found.append(f"{place}: {importer} is not in the table of tests/test_layering.py")
            continue
        allowed = may_import(importer)
        if module[2:] == ["__init__"]:  # a folder exports names of its subfolders
            allowed |= {row for row in MAY_IMPORT if row.startswith(f"{importer}.")}
        for line, imported in imported_homes(ast.parse(path.read_text("utf-8")), module):
            if imported not in allowed:
                found.append(f"{place}:{line}: {importer} must not import {imported}")
    return found


def test_imports_follow_the_direction():
    assert violations(ROOT / PACKAGE) == []


def test_the_table_is_ordered():
    rows = list(MAY_IMPORT)
    for position, (importer, allowed) in enumerate(MAY_IMPORT.items()):
        assert set(allowed.split()) <= set(rows[:position]), importer


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md", "docs/design.zh-CN.md"])
def test_the_documented_order_of_folders_is_that_of_the_table(page):
    [order] = re.findall(r"^ *(functional < .*)$", (ROOT / page).read_text("utf-8"), re.M)
    ranks = [re.findall(r"\w+", rank) for rank in order.split("<")]
    for position, rank in enumerate(ranks):
        to_the_left = {folder for folders in ranks[:position] for folder in folders}
        to_the_right = {folder for folders in ranks[position:] for folder in folders}
        for folder in rank:
            assert may_import(folder) & to_the_right == {folder}, f"{page}: {folder}"
        assert not position or any(may_import(folder) & to_the_left for folder in rank)
    assert {folder for rank in ranks for folder in rank} <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    "importer, line, imported",
    [
        ("functional/masks.py", "from tf_transformer.layers import Encoder", "layers"),
        ("functional/masks.py", "import tf_transformer.models.transformer", "models"),
        ("functional/masks.py", "from tf_transformer import data", "data"),
        ("functional/masks.py", "from tf_transformer import Transformer", EVERYTHING),
        ("functional/masks.py", "import tf_transformer", EVERYTHING),
        ("layers/encoder.py", "def f():\n    from tf_transformer.models import x", "models"),
        ("layers/encoder.py", "from ..models import Transformer", "models"),
        ("layers/encoder.py", "from .. import models", "models"),
        ("layers/__init__.py", "from ..models.transformer import Transformer", "models"),
        ("models/bert/layer.py", "from ...export import Translator", "export"),
        ("tokenizers/models.py", "from tf_transformer.data import load_corpus", "data"),
        ("data/split.py", "from tf_transformer.functional import x", "functional"),
        ("training/loss.py", "from tf_transformer.generation import x", "generation"),
        ("training/a.py", "from tf_transformer.training.runs import x", "training.runs"),
        ("training/a.py", "from .runs.presets import x", "training.runs"),
        ("training/runs/a.py", "from tf_transformer.export import x", "export"),
        ("functional/layer_norm.py", "from .attention import x", "functional.attention"),
        ("export/sentences/a.py", "from ..translation import x", "export.translation"),
        ("layers/a.py", "from tf_transformer.training.losses import x", "training"),
        (
            "generation/sampling.py",
            "import tf_transformer.training.losses as loss",
            "training",
        ),
        ("export/translator.py", "from tf_transformer.cli import main", "cli"),
        ("models/a.py", "importlib.import_module('tf_transformer.export')", "export"),
        ("models/a.py", "import_module('..export.translator', __package__)", "export"),
        ("models/a.py", "import_module(f'tf_transformer.export.{name}')", "export"),
        ("models/a.py", "import_module(f'tf_transformer.{name}')", EVERYTHING),
        ("models/a.py", "import_module(name)", EVERYTHING),
        ("models/a.py", "__import__('tf_transformer.export')", "export"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, importer, line, imported):
    plant(tmp_path, importer, line)
    [caught] = violations(tmp_path)
    assert caught.startswith(importer)
    folder = home([PACKAGE, *importer.removesuffix(".py").split("/")])
    assert caught.endswith(f"{folder} must not import {imported}")


@pytest.mark.parametrize(
    "importer, line",
    [
        ("models/a.py", "from tf_transformer.layers.encoder import Encoder"),
        ("models/a.py", "from ..layers import Encoder"),
        ("models/a.py", "from .b import c"),
        ("layers/a.py", "from tf_transformer.functional.attention.masks import x"),
        ("functional/__init__.py", "from tf_transformer.functional.attention import x"),
        ("functional/attention/whole.py", "from tf_transformer.functional.tensors import x"),
        ("training/runs/a.py", "from ..losses import x"),
        ("export/sentences/a.py", "from tf_transformer.training.runs import x"),
        ("models/bert/a.py", "from ..transformer import Transformer"),
        ("models/a.py", "from tf_transformer import __version__"),
        ("models/a.py", "import tensorflow as tf"),
        ("data/a.py", "from tf_transformer.tokenizers import BPETokenizer"),
        ("data/__init__.py", "import_module(f'{__name__}.{home}')"),
        ("data/__init__.py", "import_module('.split', __name__)"),
        ("data/a.py", "import_module('tensorboard')"),
        ("cli.py", "from tf_transformer import Transformer"),
        ("__init__.py", "import_module(f'tf_transformer.{home}')"),
    ],
)
def test_an_import_to_the_left_passes(tmp_path, importer, line):
    plant(tmp_path, importer, line)
    assert violations(tmp_path) == []


def test_a_folder_outside_the_table_is_caught(tmp_path):
    plant(tmp_path, "misc/a.py", "")
    assert violations(tmp_path) == ["misc/a.py: misc is not in the table of tests/test_layering.py"]


def plant(root, name, source):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, "utf-8")


def test_nothing_has_a_vague_name():
    vague = [
        str(path.relative_to(ROOT))
        for folder in (PACKAGE, "tests", "benchmarks", "notebooks")
        for path in (ROOT / folder).rglob("*")
        if path.stem in VAGUE_NAMES
        and (path.is_dir() or path.suffix == ".py")
        and ".environments" not in path.parts  # environments of benchmark peers
    ]
    assert vague == []


def test_autograph_can_read_what_runs_in_graphs():
    folders = ("functional", "layers")
    files = [path for folder in folders for path in python_files(ROOT / PACKAGE / folder)]
    for path in (*files, ROOT / PACKAGE / "training" / "losses.py"):
        found = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if type(node) is ast.NamedExpr
        ]
        assert not found, f"{path}:{found[0]}: AutoGraph warns of `:=` whenever it is traced"


def test_files_are_short():
    too_long = {}
    for path in python_files(ROOT / PACKAGE):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > MOST_LINES:
            too_long[str(path.relative_to(ROOT))] = lines
    assert too_long == {}
