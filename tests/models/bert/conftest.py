"""Fixtures for the BERT tests; a test file may override `folder`."""

import shutil

import pytest
from bert_vectors import GOLDEN


@pytest.fixture
def folder(tmp_path):
    """A copy of the tiny BertModel."""
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "BertModel", path)
    return path
