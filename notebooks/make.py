"""Build the notebooks from the `.py` files in this folder: `python notebooks/make.py [NAME ...]`.

Runs each `NAME.py` (jupytext's percent format) from top to bottom and stores it with its outputs as
`NAME.ipynb`. Edit the `.py`; `tests/test_notebooks.py` fails if the two are out of sync.
"""

import argparse
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def sources():
    """The text files, in order."""
    return sorted(path for path in FOLDER.glob("[0-9]*.py"))


def run(notebook, folder=FOLDER):
    """Run all cells in place; drop standard error, which is startup noise."""
    NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # changes with every run
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    return notebook


def read(path):
    """The notebook described by a text file, with numbered cell ids."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # random ids would change in every diff
    return notebook


def main():
    """Run the requested notebooks, by default all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="01_attention, for example")
    names = parser.parse_args().names
    for path in [FOLDER / f"{name}.py" for name in names] or sources():
        print(path.stem, flush=True)
        nbformat.write(run(read(path)), path.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
