"""Rows times a transposed table: the same products and gradients for every number of rows.

Axes: M rows, D width, V vocabulary.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.functional import tensors
from tf_transformer.functional.tensors import times_transposed

V, D = 31, 7


@pytest.mark.parametrize("by_onednn", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 8, 256, 257])
@pytest.mark.parametrize("known", [False, True])
def test_products_and_gradients(monkeypatch, by_onednn, count, known):
    monkeypatch.setattr(tensors, "IsMklEnabled", lambda: by_onednn)
    rng = np.random.default_rng(count)
    rows, table = rng.normal(size=(count, D)), rng.normal(size=(V, D))
    upstream = rng.normal(size=(count, V))

    shapes = (count if known else None, D), (V, D), (None, V)

    @tf.function(input_signature=[tf.TensorSpec(shape) for shape in shapes])
    def all_of(rows, table, upstream):
        with tf.GradientTape() as tape:
            tape.watch([rows, table])
            products = times_transposed(rows, table)
        assert products.shape.is_compatible_with((count, V)) and products.shape[1] == V
        return products, *tape.gradient(products, [rows, table], upstream)

    results = all_of(*(tf.constant(x, tf.float32) for x in (rows, table, upstream)))
    references = rows @ table.T, upstream @ table, upstream.T @ rows
    for result, expected in zip(results, references, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
