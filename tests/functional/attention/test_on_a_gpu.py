"""Fused attention by cuDNN itself, against float64: `pytest -m gpu` on a machine with a GPU."""

import numpy as np
import pytest
import tensorflow as tf
from attention_plans import near
from fused_cases import CASES, blocked_of, check, check_rate, inputs, run

from tf_transformer import scaled_dot_product_attention
from tf_transformer.functional.attention.plan import capability

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif((capability() or (0, 0)) < (8, 0), reason="no GPU for cuDNN"),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("width", [8, 64, 128])
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_float64(case, width, dtype):
    t, s, mask, options = CASES[case]
    is_bias = mask is not None and ("causal" in options or mask.shape[-2] > 1)
    if dtype == "float16" and is_bias:
        pytest.skip("a mask is no bias in float16")
    given = inputs(t, s, dtype, width=width)
    output, gradients = run(*given, mask if mask is None else tf.constant(mask), **options)
    check(output, gradients, given, blocked_of(t, s, mask, options))


def test_long_rows_with_much_padding():
    given = inputs(1024, 2048, width=64)
    mask = np.ones((3, 1, 1, 2048), np.float32)
    for row, length in enumerate((1, 777, 2048)):
        mask[row, ..., 2048 - length :] = 0  # padding at the start
    output, gradients = run(*given, tf.constant(mask))
    check(output, gradients, given, mask)


def test_dropout_drops_the_same_weights_backward():
    q, _, v, g = inputs(64, 64, width=64)
    # Equal scores: of values like an identity matrix, the output shows which weights were kept.
    q, one = tf.zeros_like(q), tf.ones_like(v)
    each = tf.broadcast_to(tf.eye(64, dtype=v.dtype), v.shape)
    output, (_, _, dv) = run(q, q, each, g, dropout=(0.3, [3, 4]))
    kept, upstream = (tf.cast(x, tf.float64).numpy() for x in (output, g))
    near(dv, np.swapaxes(kept, -1, -2) @ upstream, "bfloat16")
    check_rate(run(q, q, one, one, dropout=(0.3, [3, 4]))[0], 0.3, 64)

    @tf.function(jit_compile=True, autograph=False)
    def drawn():
        options = {"dropout": (0.3, [3, 4]), "plan": "fused", "return_attention_weights": False}
        return scaled_dot_product_attention(q, q, one, **options)[0]

    assert (drawn() != drawn()).numpy().any()  # each run draws anew
