"""The notebooks run from top to bottom, and their stored outputs match their source."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
pytest.importorskip("nbclient")
import nbformat

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = [path.stem for path in sorted(FOLDER.glob("[0-9]*.py"))]
# Replaces the cell tagged "parameters": a short run tests the cells, not the quality.
SHORT = {
    "02_train_a_translator": "EPOCHS = 1\nPAIRS = 600",
    "03_tokenizers": "PAIRS = 1500\nSIZES = (2500, 4000)",
    "04_bert": 'PRESET, EPOCHS = "tiny", 1\nLABELS = (8,)',
}


@pytest.fixture(scope="module")
def make():
    specification = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def cells(notebook):
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_is_in_step_with_its_text(make, name):
    stored = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert cells(stored) == cells(make.read(FOLDER / f"{name}.py")), (
        f"notebooks/{name}.py was changed: run python notebooks/make.py {name}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_has_its_outputs(name):
    stored = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    # Run once, from top to bottom, without errors.
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    kinds = {output.output_type for output in outputs}
    assert "error" not in kinds and "stderr" not in {o.get("name") for o in outputs}
    pictures = [kind for output in outputs for kind in output.get("data", {}) if "image" in kind]
    assert pictures


@pytest.mark.notebook
@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_runs(make, name, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    notebook = make.read(FOLDER / f"{name}.py")
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = SHORT[name]
    make.run(notebook, tmp_path)
    assert list(tmp_path.iterdir()) == []
