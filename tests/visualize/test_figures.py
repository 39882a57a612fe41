"""The figures show the numbers that they are given, in both themes, and Chinese as Chinese."""

import sys
import warnings

import numpy as np
import pytest

from tf_transformer import (
    complexity_figure,
    gradients_figure,
    heads_figure,
    importance_figure,
    positions_figure,
)
from tf_transformer.functional.positions import sinusoidal_positions
from tf_transformer.visualize import chinese_font
from tf_transformer.visualize.figures import new_figure

pytest.importorskip("matplotlib")

RNG = np.random.default_rng(5)
WEIGHTS = RNG.dirichlet(np.ones(7), (5, 3))  # heads, queries, keys
QUERIES, KEYS = ["a", "b", "c"], list("tuvwxyz")
FIGURES = {
    heads_figure: (WEIGHTS, QUERIES, KEYS),
    positions_figure: (sinusoidal_positions(11, 6),),
    importance_figure: ({"encoder": [[0.1, 0.2], [0.3, 0.5]]},),
    gradients_figure: ({"a": [1.0, 2.0, 0.5]},),
    complexity_figure: ([1, 2, 4], {"a": [1.0, 3.0, 9.0]}),
}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)
@pytest.mark.one_of(10)
def test_a_light_and_a_dark_page(draw, dark, tmp_path):
    figure = draw(*FIGURES[draw], dark=dark)
    figure.savefig(tmp_path / "a.png")  # nothing overlaps the page, no warning
    from matplotlib.image import imread

    picture = imread(tmp_path / "a.png")[..., :3]
    assert (picture[0, 0].mean() < 0.2) == dark
    text = figure.axes[0].xaxis.label.get_color()
    assert text == ("#e6e6e6" if dark else "black")


def test_every_head_and_only_those():
    figure = heads_figure(WEIGHTS, QUERIES, KEYS, titles=list("12345"))
    *axes, bar = figure.axes
    shown = [axis for axis in axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == list("12345")
    for axis, head in zip(shown, WEIGHTS, strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array(), head)
        assert axis.images[0].get_clim() == (0, 1)
    assert [label.get_text() for label in shown[0].get_yticklabels()] == QUERIES
    assert [label.get_text() for label in shown[-1].get_xticklabels()] == KEYS
    assert bar.get_ylabel() == "weight"


def test_codes_and_their_products():
    codes = sinusoidal_positions(11, 6)
    left, right, _ = positions_figure(codes).axes
    np.testing.assert_allclose(left.images[0].get_array(), codes)
    lines = {line.get_label(): line.get_ydata() for line in right.lines}
    assert list(lines) == ["position 2", "position 5", "position 8"]
    np.testing.assert_allclose(lines["position 5"], codes @ codes[5], rtol=1e-6)


def test_importance_of_a_pruned_model():
    figure = importance_figure({"encoder": [[0.125, 2.0], [3.0]], "cross": [[0.5, 1.0, 0.25]]})
    encoder, cross, _ = figure.axes
    assert [text.get_text() for text in encoder.texts] == ["0.12", "2", "3"]
    assert [text.get_position() for text in encoder.texts] == [(0, 0), (1, 0), (0, 1)]
    assert encoder.images[0].get_clim() == cross.images[0].get_clim() == (0.125, 3.0)
    assert cross.get_title() == "cross"


def test_gradients_leave_out_what_does_not_arrive():
    axis = gradients_figure({"a": [0.0, 1e-9, 1.0], "b": [1.0, 1.0, 1.0]}).axes[0]
    assert axis.lines[0].get_xydata().tolist() == [[2, 1e-9], [3, 1.0]]
    assert axis.get_yscale() == "log"
    assert axis.lines[0].get_color() != axis.lines[1].get_color()
    assert axis.lines[0].get_marker() != axis.lines[1].get_marker()


def test_exponents_are_those_of_the_larger_sizes():
    sizes = np.array([16, 32, 64, 128, 256])
    costs = {"square": 3e-6 * sizes**2 + 1e-3 * (sizes < 50), "line": 2.0 * sizes}
    axis = complexity_figure(sizes, costs, xlabel="T").axes[0]
    labels = [line.get_label() for line in axis.lines]
    assert labels == ["square: exponent 2.00", "line: exponent 1.00"]
    assert (axis.get_xscale(), axis.get_yscale(), axis.get_xlabel()) == ("log", "log", "T")


def test_chinese_is_drawn_in_a_font_that_has_it_or_a_warning_says_so(monkeypatch):
    font = chinese_font()
    if font is not None:
        figure = heads_figure([[1.0]], ["车站"], ["火车"])
        figure.canvas.draw()  # a missing glyph would warn
        label = figure.axes[0].get_yticklabels()[0]
        assert label.get_fontfamily() == ["sans-serif", font]
    monkeypatch.setattr("matplotlib.font_manager.get_font_names", lambda: ["DejaVu Sans"])
    assert chinese_font() is None
    with pytest.warns(UserWarning, match="No installed font shows Chinese.*fonts-noto-cjk"):
        heads_figure([[1.0]], ["车站"], ["火车"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heads_figure([[1.0]], ["station"], ["é"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: heads_figure(WEIGHTS, QUERIES[1:], KEYS), "queries: expected 3 strings"),
        (
            lambda: heads_figure(WEIGHTS * 9, QUERIES, KEYS),
            r"weights: expected numbers in \[0, 1\]",
        ),
        (
            lambda: positions_figure([1.0]),
            r"codes: expected \(positions, width\), got shape \(1,\)",
        ),
        (lambda: positions_figure([[np.nan]]), "codes: expected finite numbers"),
        (lambda: importance_figure({}), "importance: expected at least one stack"),
        (lambda: importance_figure({"a": [[]]}), "importance: expected finite numbers, a row for"),
        (lambda: importance_figure({"a": [[np.inf]]}), "importance: expected finite .* for 'a'"),
        (lambda: gradients_figure({}), "norms: expected at least one line"),
        (lambda: gradients_figure({"a": [-1.0]}), r"norms: expected .* got \[-1.0\] for 'a'"),
        (lambda: complexity_figure([2, 1], {}), "sizes: expected two or more increasing"),
        (
            lambda: complexity_figure([1, 2], {"a": [1]}),
            r"costs: expected 2 .* got \[1.0\] for 'a'",
        ),
        (lambda: complexity_figure([1, 2], {"a": [1, 0]}), "costs: expected 2 numbers above 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install -e "\.\[notebooks\]"'), new_figure(1, 1):
        pass
