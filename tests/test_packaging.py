"""The wheel contains everything, and the installed package works from any folder."""

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tf_transformer

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "build", "*.egg-info", "__pycache__")
MODEL_FILES = {
    "saved_models/en-zh/README.md": b"card",
    "saved_models/en-zh/saved_model.pb": b"graph",
    "saved_models/en-zh/assets/vocabulary.json": b"{}",
    "saved_models/en-zh/variables/variables.index": b"index",
}


@pytest.fixture(scope="module")
def setup_cfg():
    parser = configparser.ConfigParser(comment_prefixes="#")
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def lines(text):
    return [line for line in text.splitlines() if line]


def test_every_folder_is_listed(setup_cfg):
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "tf_transformer").rglob("*.py")
    }
    assert set(lines(setup_cfg["options"]["packages"])) == folders | {"tf_transformer.saved_models"}


def test_every_folder_is_a_package():
    folders = {path.parent for path in (ROOT / "tf_transformer").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_serving_needs_tensorflow_and_numpy_only(setup_cfg):
    required = lines(setup_cfg["options"]["install_requires"])
    assert required == ["tensorflow>=2.19,<2.22", "keras>=3.10", "numpy"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with a small stand-in for the exported model; return it unpacked."""
    pytest.importorskip("setuptools", minversion="70.1")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "README.md").write_text("# tf_transformer\n", "utf-8")
    shutil.copytree(ROOT / "tf_transformer", source / "tf_transformer", ignore=LEFT_OUT)
    for name, content in MODEL_FILES.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    program = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    built = subprocess.run(
        [sys.executable, "-c", program, str(folder)], cwd=source, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    [archive] = folder.glob("*.whl")
    unpacked = folder / "site-packages"
    zipfile.ZipFile(archive).extractall(unpacked)
    return unpacked


def test_wheel_holds_every_module(wheel):
    expected = {path.relative_to(ROOT) for path in (ROOT / "tf_transformer").rglob("*.py")}
    assert {path.relative_to(wheel) for path in wheel.rglob("*.py")} == expected


def test_wheel_holds_the_tables_of_the_tokenizers(wheel):
    assert (wheel / "tf_transformer" / "tokenizers" / "graph" / "unicode.npz").is_file()


def test_wheel_holds_the_page_of_the_explorer(wheel):
    page = Path("tf_transformer", "visualize", "page")
    names = {path.name for path in (ROOT / page).iterdir()}
    assert {"page.html", "style.css", "app.js"} <= names
    assert {path.name for path in (wheel / page).iterdir()} == names


def test_wheel_holds_the_corpora(wheel):
    corpora = Path("tf_transformer", "data", "corpora")
    names = {path.name for path in (ROOT / corpora).iterdir()}
    assert {"README.md", "en-fr.tsv.gz", "en-zh.tsv.gz"} <= names
    assert {path.name for path in (wheel / corpora).iterdir()} == names


@pytest.mark.parametrize("name", MODEL_FILES)
def test_wheel_holds_the_models_inside_the_package(wheel, name):
    assert (wheel / "tf_transformer" / name).read_bytes() == MODEL_FILES[name]


def test_wheel_installs_nothing_beside_the_package(wheel):
    information = f"tf_transformer-{tf_transformer.__version__}.dist-info"
    assert {path.name for path in wheel.iterdir()} == {"tf_transformer", information}
    entry_points = (wheel / information / "entry_points.txt").read_text("utf-8")
    assert "tf-transformer = tf_transformer.cli:main" in entry_points


def test_installed_package_reads_its_corpus_from_any_folder(wheel, tmp_path):
    program = "from tf_transformer.data import load_corpus; print(len(load_corpus('en-zh')))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "29155", done.stderr
