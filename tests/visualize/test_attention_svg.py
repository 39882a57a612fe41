"""The image contains the numbers with the right labels and is well-formed for any labels."""

from xml.etree import ElementTree

import numpy as np
import pytest

from tf_transformer.visualize import attention_svg

SVG = "{http://www.w3.org/2000/svg}"


def squares(picture):
    root = ElementTree.fromstring(picture)
    return [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]


def texts(picture):
    return [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_every_weight_stands_at_its_row_and_column():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), (2, 3))  # (N, T, S)
    found = squares(attention_svg(weights, list("abc"), list("vwxyz")))
    titles = [rect.find(f"{SVG}title").text for rect in found]
    assert titles == [
        f"{'abc'[t]} to {'vwxyz'[s]}: {weights[n, t, s]:.3f}"
        for n, t, s in np.ndindex(weights.shape)
    ]
    places = [(float(rect.get("x")), float(rect.get("y"))) for rect in found]
    assert len(set(places)) == weights.size
    for n, t, s in np.ndindex(weights.shape):  # columns to the right, rows down, heads to the right
        x, y = places[np.ravel_multi_index((n, t, s), weights.shape)]
        assert (x > places[0][0]) == (n > 0 or s > 0)
        assert (y > places[0][1]) == (t > 0)


def test_a_larger_weight_is_darker():
    found = squares(attention_svg([[0.0, 0.3, 0.7]], ["a"], ["x", "y", "z"]))
    shades = [float(rect.get("fill-opacity")) for rect in found]
    assert shades == sorted(shades) and shades[1:] == [0.3, 0.7]


def test_everything_lies_inside_the_picture():
    picture = attention_svg(np.full((3, 2, 4), 0.25), ["车站在哪里", "a"], ["station"] * 4)
    root = ElementTree.fromstring(picture)
    width, height = float(root.get("width")), float(root.get("height"))
    for rect in squares(picture):
        assert min(float(rect.get("x")), float(rect.get("y"))) >= 0
        assert float(rect.get("x")) + float(rect.get("width")) <= width
        assert float(rect.get("y")) + float(rect.get("height")) <= height


def test_labels_are_text_and_are_escaped():
    picture = attention_svg([[1.0]], ["<script>&"], ["\x00车\ud800"], titles=['"layer"'])
    assert texts(picture) == ["<script>&", '"layer"', "<00>车<D800>"]
    picture.encode("utf-8")


def test_heads_are_named_and_a_single_matrix_is_not():
    assert texts(attention_svg(np.ones((2, 1, 1)), ["a"], ["b"])) == [
        "a", "head 1", "b", "head 2", "b"
    ]  # fmt: skip
    assert texts(attention_svg(np.ones((1, 1)), ["a"], ["b"])) == ["a", None, "b"]


@pytest.mark.parametrize(
    ("weights", "queries", "keys", "message"),
    [
        (np.ones((2, 2, 1, 1)), ["a"], ["b"], r"weights: expected .* got shape \(2, 2, 1, 1\)"),
        ([[1.5]], ["a"], ["b"], r"weights: expected numbers in \[0, 1\], got 1.5"),
        ([[-3.0]], ["a"], ["b"], r"weights: .* not the scores"),
        ([[np.nan]], ["a"], ["b"], r"weights: .* got nan"),
        ([[1.0]], ["a", "b"], ["c"], r"queries: expected 1 strings, .* got 2"),
        ([[1.0]], ["a"], ["b", "c"], r"keys: expected 1 strings, .* got 2"),
    ],
)
def test_bad_input_is_named(weights, queries, keys, message):
    with pytest.raises(ValueError, match=message):
        attention_svg(weights, queries, keys)


def test_titles_of_another_number_are_named():
    with pytest.raises(ValueError, match="titles: expected 2 strings, .* got 1"):
        attention_svg(np.ones((2, 1, 1)), ["a"], ["b"], titles=["one"])
