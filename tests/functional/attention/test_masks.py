"""Masks: their values and conversion between the two conventions."""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import vectors

from tf_transformer import create_look_ahead_mask, create_masks, create_padding_mask
from tf_transformer.functional.attention.masks import blocked_scores

SCORES = tf.TensorShape((2, 7, 3, 5))  # (B, N, T, S)


def test_padding_mask_marks_zeros_wherever_they_are():
    mask = create_padding_mask(vectors("transformer")["inp"])
    assert mask.dtype == tf.float32
    expected = [[[[0, 1, 0, 0, 0]]], [[[0, 0, 0, 1, 1]]]]
    assert mask.numpy().tolist() == expected


def test_look_ahead_mask_leaves_the_diagonal_open():
    mask = create_look_ahead_mask(3)
    assert mask.dtype == tf.float32
    assert mask.numpy().tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert create_look_ahead_mask(tf.constant(1)).numpy().tolist() == [[0]]


def test_masks_match_the_vectors():
    data = vectors("transformer")
    names = ("enc_padding_mask", "combined_mask", "dec_padding_mask")
    for name, mask in zip(names, create_masks(data["inp"], data["tar"]), strict=True):
        assert mask.dtype == tf.float32
        np.testing.assert_array_equal(mask, data[name])


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_masks_match_the_reference_in_a_graph_of_unknown_shape(dtype):
    make = tf.function(create_masks, input_signature=[tf.TensorSpec((None, None), dtype)] * 2)
    rng = np.random.default_rng(5)
    for length in (1, 4):
        inp, tar = rng.integers(0, 3, (2, 5)), rng.integers(0, 3, (2, length))
        actual = make(tf.cast(inp, dtype), tf.cast(tar, dtype))
        for mask, expected in zip(actual, ref.create_masks(inp, tar), strict=True):
            np.testing.assert_array_equal(mask, expected)


def test_the_decoder_mask_blocks_padding_and_future_alike():
    _, combined, _ = create_masks([[1]], [[7, 0, 8]])
    assert combined.numpy().tolist() == [[[[0, 1, 1], [0, 1, 1], [0, 1, 0]]]]


# Conversion between the conventions


def test_no_mask_blocks_nothing():
    assert blocked_scores(None, SCORES) is None


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_in_a_float_mask_one_is_blocked(dtype):
    mask = tf.constant([[0, 1, 0, 1, 0]] * 3, dtype)
    blocked = blocked_scores(mask, SCORES)
    assert blocked.dtype == tf.bool
    assert blocked.numpy().tolist() == [[False, True, False, True, False]] * 3


@pytest.mark.parametrize("shape", [(2, 7, 3, 5), (2, 1, 1, 5), (1, 1, 3, 5), (2, 7, 3, 1), (3, 5)])
def test_a_float_mask_keeps_its_shape(shape):
    assert blocked_scores(tf.ones(shape), SCORES).shape == shape


@pytest.mark.parametrize(
    ("shape", "spread"),
    [
        ((2, 5), (2, 1, 1, 5)),
        ((2, 3, 5), (2, 1, 3, 5)),
        ((2, 1, 5), (2, 1, 1, 5)),
        ((2, 7, 3, 5), (2, 7, 3, 5)),
        ((1, 1, 3, 5), (1, 1, 3, 5)),
    ],
)
def test_a_bool_mask_is_turned_round_and_spread(shape, spread):
    mask = np.random.default_rng(1).integers(0, 2, shape).astype(bool)
    blocked = blocked_scores(mask, SCORES)
    assert blocked.shape == spread
    np.testing.assert_array_equal(blocked, ~mask.reshape(spread))


def test_without_heads_a_bool_mask_of_two_axes_is_queries_by_keys():
    mask = tf.constant([[True, False], [True, True], [False, True]])
    blocked = blocked_scores(mask, tf.TensorShape((3, 2)))
    np.testing.assert_array_equal(blocked, ~mask.numpy())


def test_unknown_sizes_are_left_to_the_graph():
    make = tf.function(
        lambda mask: blocked_scores(mask, tf.TensorShape((None, 7, None, None))),
        input_signature=[tf.TensorSpec((None, None), tf.bool)],
    )
    assert make(tf.constant([[True, False]])).numpy().tolist() == [[[[False, True]]]]


@pytest.mark.parametrize(
    ("mask", "came"),
    [
        (tf.zeros((5,)), r"float32 \(5,\)"),
        (tf.zeros((3, 4)), r"float32 \(3, 4\)"),
        (tf.zeros((5, 3)), r"float32 \(5, 3\)"),
        (tf.zeros((2, 3, 5)), r"float32 \(2, 3, 5\)"),
        (tf.zeros((3, 1, 1, 5)), r"float32 \(3, 1, 1, 5\)"),
        (tf.zeros((1, 2, 7, 3, 5)), r"float32 \(1, 2, 7, 3, 5\)"),
        (tf.zeros((2, 3), tf.bool), r"bool \(2, 3\)"),
        (tf.zeros((5,), tf.bool), r"bool \(5,\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mask_that_does_not_broadcast_is_refused(mask, came):
    with pytest.raises(ValueError, match=rf"mask: expected.*\(2, 7, 3, 5\).*got {came}") as error:
        blocked_scores(mask, SCORES)
    assert "tf.expand_dims(mask, 1)" in str(error.value)


def test_a_mask_may_not_widen_the_scores():
    with pytest.raises(ValueError, match="mask: expected a shape that broadcasts"):
        blocked_scores(tf.zeros((2, 1, 1, 5)), tf.TensorShape((1, 7, 3, 5)))


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8])
def test_an_integer_mask_is_refused(dtype):
    with pytest.raises(ValueError, match=f"mask: expected float.*got {dtype.name}") as error:
        blocked_scores(tf.zeros((2, 1, 1, 5), dtype), SCORES)
    assert "if 1 means blocked pass tf.cast(mask, tf.float32)" in str(error.value).lower()
    assert "if 1 means may attend pass tf.cast(mask, tf.bool)" in str(error.value)
