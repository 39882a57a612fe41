"""Choosing a plan, and errors raised before anything is computed."""

import pytest
import tensorflow as tf
from attention_plans import near, normal, some_inputs

from tf_transformer import (
    AttentionPlan,
    EncoderLayer,
    attention_plan,
    create_padding_mask,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention.plan import choose_plan
from tf_transformer.functional.attention.scaled_dot_product import cached_attention


def shape(t, s=None):
    return tf.TensorShape((1, 8, t, 64)), tf.TensorShape((1, 8, s or t, 64))


@pytest.mark.parametrize(
    ("lengths", "weights", "plain", "by_xla"),
    [
        ((128,), False, "whole", "whole"),
        ((16384,), True, "whole", "whole"),
        ((1448,), False, "whole", "whole"),  # 8 x 1448 x 1448 < 2 ** 24 < 8 x 1449 x 1449
        ((1449,), False, "rowwise", "whole"),
        ((2896,), False, "rowwise", "whole"),  # 8 x 2896 x 2896 < 2 ** 26 < 8 x 2897 x 2897
        ((2897,), False, "rowwise", "blockwise"),
        ((16384,), False, "rowwise", "blockwise"),
        ((1, 16384), False, "whole", "whole"),
        ((None, 16384), False, "whole", "whole"),
    ],
)
def test_auto_chooses_by_lengths_and_weights(lengths, weights, plain, by_xla):
    assert choose_plan("auto", *shape(*lengths), weights, compiled=False).name == plain
    assert choose_plan("auto", *shape(*lengths), weights, compiled=True).name == by_xla


@pytest.mark.parametrize(
    ("lengths", "window", "weights", "expected"),
    [
        ((512,), 64, False, AttentionPlan("windowed", query_block=128)),  # 512 = 2 (128 + 2 x 64)
        ((511,), 64, False, AttentionPlan("whole")),
        ((16384,), 64, True, AttentionPlan("whole")),
        ((16384, 511), 64, False, AttentionPlan("whole")),
        ((1, 16384), 64, False, AttentionPlan("windowed", query_block=128)),
        ((16384,), 2048, False, AttentionPlan("windowed", query_block=1024)),
        ((None, None), 64, False, AttentionPlan("windowed", query_block=128)),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_auto_with_a_window_chooses_by_keys_and_weights(
    lengths, window, weights, expected, compiled
):
    assert choose_plan("auto", *shape(*lengths), weights, compiled, window) == expected


def test_a_preferred_plan_that_does_not_fit_the_window_is_left_out():
    def chosen(window):
        return choose_plan("auto", *shape(16384), False, compiled=False, window=window).name

    for plan, without, within in (
        ("rowwise", "rowwise", "windowed"),
        ("blockwise", "blockwise", "windowed"),
        ("windowed", "rowwise", "windowed"),
        ("whole", "whole", "whole"),
    ):
        with attention_plan(plan):
            assert (chosen(None), chosen(64)) == (without, within)


def test_an_unknown_batch_counts_as_one():
    long = tf.TensorShape((None, 8, 1449, 64))
    assert choose_plan("auto", long, long, False, compiled=False).name == "rowwise"


def test_a_plan_may_be_forced_and_preferred():
    def chosen(plan, weights=False):
        return choose_plan(plan, *shape(3), weights, compiled=False)

    assert chosen("blockwise") == AttentionPlan("blockwise")
    mine = AttentionPlan("rowwise", most_scores=57)
    with attention_plan(mine):
        assert chosen("auto") == mine
        assert chosen("whole").name == "whole"
        assert chosen("auto", weights=True).name == "whole"
        with attention_plan("auto"):
            assert chosen("auto").name == "whole"
    assert chosen("auto").name == "whole"


def test_a_preferred_plan_reaches_the_layers():
    layer = EncoderLayer(8, 2, 16)
    x = normal(2, 5, 8)
    expected = layer(x, mask=create_padding_mask([[1, 1, 0, 1, 1]] * 2))
    before = count_loops(layer, x)
    with attention_plan(AttentionPlan("blockwise", query_block=2, key_block=3)):
        actual = layer(x, mask=create_padding_mask([[1, 1, 0, 1, 1]] * 2))
        assert count_loops(layer, x) > before
    near(actual, expected.numpy(), "float32")


def count_loops(layer, x):
    graph = tf.function(lambda x: layer(x)).get_concrete_function(x).graph
    return sum("While" in op.type for op in graph.get_operations())


# Bad input


@pytest.mark.parametrize("plan", ["flash", None, 3, ""])
def test_an_unknown_plan_is_refused(plan):
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match='plan: expected "auto", "whole", "rowwise"'):
        scaled_dot_product_attention(q, k, v, plan=plan)
    if plan is None:
        return  # a context keeps the plan set outside
    with (
        pytest.raises(ValueError, match='plan: expected "auto", "whole", "rowwise"'),
        attention_plan(plan),
    ):
        pass


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "64"])
@pytest.mark.parametrize("field", ["most_scores", "query_block", "key_block"])
def test_a_block_size_is_a_positive_integer(field, size):
    with pytest.raises(ValueError, match=f"{field}: expected a positive integer, got {size!r}"):
        AttentionPlan("blockwise", **{field: size})


def test_a_plan_without_weights_is_refused_where_they_are_wanted():
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match="plan.*does not compute the attention weights.*Pass"):
        scaled_dot_product_attention(q, k, v, plan="blockwise")


@pytest.mark.parametrize(
    ("plan", "window", "message"),
    [
        ("windowed", None, '"rowwise" or "blockwise" without a window, got "windowed"'),
        ("rowwise", 3, '"windowed" with a window, got "rowwise"'),
        (AttentionPlan("blockwise"), 3, '"windowed" with a window, got "blockwise"'),
    ],
)
def test_a_plan_that_does_not_fit_the_window_is_refused(plan, window, message):
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match=f'plan: expected "auto", "whole" or {message}'):
        scaled_dot_product_attention(
            q, k, v, plan=plan, window=window, return_attention_weights=False
        )


@pytest.mark.parametrize("window", [0, -1, True, 2.0, "3", tf.constant(2)])
def test_a_window_is_an_int_of_at_least_one(window):
    q, k, v, _ = some_inputs()
    cache = (tf.zeros((2, 3, 7, 4)),) * 2
    message = "window: expected None or an int of at least 1"
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(q, k, v, window=window)
    with pytest.raises(ValueError, match=message):
        cached_attention(q, q, q, cache, 0, window=window)


@pytest.mark.parametrize(
    "bias",
    [tf.zeros((3, 7, 10)), tf.zeros((1, 1, 2, 3, 7, 11)), tf.zeros((7, 11), tf.int32)],
    ids=["lengths", "rank", "dtype"],
)
def test_a_bias_that_does_not_broadcast_is_refused(bias):
    q, k, v, _ = some_inputs()
    message = r"bias: expected floats that broadcast to the scores \(2, 3, 7, 11\)"
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(q, k, v, bias=bias)


@pytest.mark.parametrize(
    ("dropout", "message"),
    [
        ((1.0, (1, 2)), "dropout: expected a rate of at least 0 and below 1, got 1.0"),
        ((-0.1, (1, 2)), "dropout: expected a rate"),
        ((0.1, (1, 2, 3)), r"dropout: .*seed of two integers, got a seed of int32 \(3,\)"),
        ((0.1, (1.0, 2.0)), r"dropout: .*seed of two integers, got a seed of float32 \(2,\)"),
    ],
)
def test_a_dropout_that_cannot_be_is_refused(dropout, message):
    q, k, v, _ = some_inputs()
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(q, k, v, dropout=dropout)
