"""What docs/ says is so: its code runs, and the masks of other libraries mean what it says."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import MultiHeadAttention

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("page", sorted(page.name for page in DOCS.glob("*.md")))
def test_the_examples_print_what_the_page_shows(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an example may write
    text = (DOCS / page).read_text("utf-8")
    block = r"```{}\n((?:(?!```).)*)```"
    examples = re.findall(rf"{block.format('python')}\n\n{block.format('text')}", text, re.S)
    assert examples
    names = {}
    for code, shown in examples:
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out == shown


PADDING = np.array([[True, True, True, False, False], [True, False, True, True, True]])
BY_QUERY = np.array(np.random.default_rng(1).random((2, 3, 5)) > 0.4)
BY_QUERY[..., 0] = True  # a free key for every query


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"attention_mask": BY_QUERY}, {"mask": BY_QUERY}),
        (
            {"attention_mask": BY_QUERY.astype(np.int32)},
            {"mask": tf.cast(BY_QUERY.astype(np.int32), tf.bool)},
        ),
        ({"key_mask": PADDING}, {"mask": PADDING}),
        ({"value_mask": PADDING}, {"mask": PADDING}),
        ({"use_causal_mask": True}, {"causal": True}),
    ],
    ids=["attention_mask", "integers", "key_mask", "value_mask", "use_causal_mask"],
)
def test_masks_of_keras_mean_what_the_table_says(theirs, ours):
    rng = np.random.default_rng(0)
    q, k, v = (tf.constant(rng.standard_normal((2, n, 8)), tf.float32) for n in (3, 5, 5))
    other = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    expected = other(q, v, k, **theirs)
    layer = MultiHeadAttention(d_model=8, num_heads=2)
    layer(q, k, v)
    layer.set_weights(
        [
            weight.reshape(-1, 8) if weight.size == 64 else weight.reshape(8)
            for weight in other.get_weights()
        ]
    )
    # Keras's order is query, key, value, output, as here: wq, wk, wv, dense.
    actual, _ = layer(q, k, v, **ours)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert not np.allclose(actual, layer(q, k, v)[0], atol=1e-2), "the mask changes nothing"
