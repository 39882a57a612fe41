"""The plotted curves show the values of the history."""

import sys

import pytest

from tf_transformer import training_curves

HISTORY = """epoch,accuracy,loss,val_accuracy,val_loss
0,0.1,5.0,0.2,4.5
1,0.3,4.0,0.25,4.25
2,0.4,3.5,0.26,4.2
"""


@pytest.fixture
def drawn(monkeypatch):
    """Return a list that collects the saved figures."""
    figures = []

    def savefig(figure, path, **_):
        figures.append((figure, path))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)
    return figures


def write(tmp_path, text):
    path = tmp_path / "history.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_each_quantity_has_a_panel_with_both_curves(tmp_path, drawn):
    training_curves(write(tmp_path, HISTORY), "curves.png")
    [(figure, path)] = drawn
    assert path == "curves.png"
    accuracy, loss = figure.axes
    assert (accuracy.get_title(), loss.get_title()) == ("accuracy", "loss")
    curves = {line.get_label(): line.get_xydata().tolist() for line in loss.lines}
    assert curves == {
        "training": [[1, 5], [2, 4], [3, 3.5]],
        "validation": [[1, 4.5], [2, 4.25], [3, 4.2]],
    }


def test_the_outputs_of_bert_have_their_names(tmp_path, drawn):
    columns = ["loss", "prediction_logits_loss", "seq_relationship_logits_accuracy"]
    header = ",".join(["epoch", *columns, *(f"val_{column}" for column in columns)])
    training_curves(write(tmp_path, f"{header}\n0,1,2,3,4,5,6\n"), "curves.png")
    titles = [axes.get_title() for axes in drawn[0][0].axes]
    assert titles == ["loss", "masked words: loss", "next sentence: accuracy"]


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_the_ending_says_the_format(tmp_path, name, begins):
    training_curves(write(tmp_path, HISTORY), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a row per finished epoch in .*history.csv, got 0 rows"),
        ("epoch,loss,val_loss\n", "got 0 rows. Train for at least one epoch"),
        ("loss,val_loss\n1,2\n", "a column epoch"),
        ("epoch,loss\n0,1\n", "columns like loss and val_loss in .*history.csv, got epoch, loss"),
        ("epoch,loss,val_loss\n0,1,low\n", "expected numbers in .*history.csv, got .*low"),
        ("epoch,loss,val_loss\n0,1\n", "expected numbers in"),
    ],
)
def test_what_is_no_history_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=f"history_file: .*{message}"):
        training_curves(write(tmp_path, text), tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_no_file_and_no_matplotlib(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="history_file: expected a history.csv, got no"):
        training_curves(tmp_path / "none.csv", tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install -e "\.\[train\]"'):
        training_curves(write(tmp_path, HISTORY), tmp_path / "a.png")
