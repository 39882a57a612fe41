"""`check_mask` finds and names each mistake, and accepts correct masks."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import (
    check_mask,
    create_look_ahead_mask,
    create_masks,
    create_padding_mask,
)

TOKENS = np.array([[5, 6, 7, 8, 0], [5, 6, 0, 0, 0], [5, 6, 7, 8, 9]])
SHAPE = (3, 2, 5, 5)
PADDING = create_padding_mask(TOKENS).numpy()
AHEAD = create_look_ahead_mask(5).numpy()


@pytest.mark.parametrize(
    ("mask", "tokens"),
    [
        (None, TOKENS),
        (PADDING, TOKENS),
        (PADDING.astype(np.float16), None),
        (TOKENS != 0, TOKENS),
        (create_masks(TOKENS, TOKENS)[1], TOKENS),
        (create_masks(TOKENS, TOKENS)[1], None),
        (AHEAD, None),
        ((AHEAD == 0)[None, None], None),
    ],
)
def test_good_masks_are_left_alone(mask, tokens):
    assert check_mask(mask, SHAPE, tokens) == []


@pytest.mark.parametrize(
    ("mask", "tokens", "finding"),
    [
        (1 - PADDING, TOKENS, "inverted: padding may be attended to"),
        (TOKENS == 0, TOKENS, "inverted: padding may be attended to"),
        (1 - PADDING, None, "inverted? The mask blocks the beginning"),
        (AHEAD.T, None, "inverted: the future may be attended to"),
        (1 - AHEAD, None, "inverted: the future may be attended to"),
        ((AHEAD != 0)[None, None], None, "inverted: the future may be attended to"),
        (AHEAD + np.eye(5, dtype=np.float32), None, "diagonal: no position may attend to itself"),
        (PADDING * -1e9, None, "additive: the values are -1e+09, "),
        (np.where(PADDING == 1, -np.inf, 0.0), None, "additive: the values are -inf, 0"),
        (PADDING * 0.5, None, "values: expected 0.0"),
        (np.ones_like(PADDING), None, "all blocked: no query"),
        (np.zeros_like(PADDING), None, "idle: the mask blocks nothing"),
        (AHEAD, TOKENS, "padding: sentence 0 may attend to its padding"),
        (PADDING.swapaxes(2, 3), None, "transposed: the mask is the same for every key"),
        (PADDING.astype(np.int32), None, "mask: expected float (1.0 = blocked) or bool"),
        (PADDING[:, 0], None, "mask: expected a shape that broadcasts"),
        (PADDING[..., :4], None, "mask: expected a shape that broadcasts"),
    ],
)
def test_each_mistake_is_named(mask, tokens, finding):
    findings = check_mask(mask, SHAPE, tokens)
    assert [text[: len(finding)] for text in findings[:1]] == [finding]


def test_left_padding_is_only_asked_about():
    left = create_padding_mask(TOKENS[:, ::-1])
    assert check_mask(left, SHAPE, TOKENS[:, ::-1]) == []
    assert check_mask(left, SHAPE)[0].startswith("inverted?")


def test_lonely_rows_are_counted_and_the_first_named():
    mask = np.zeros((3, 1, 5, 5), np.float32)
    mask[0, 0, :, 2] = mask[1, 0, 3] = mask[2, 0, 4] = 1
    (finding,) = check_mask(mask, SHAPE)
    assert finding.startswith("lonely rows: 2 of 15 queries")
    assert "query 3 of sentence 1" in finding


@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_two_axes_that_could_be_two_things_are_named(dtype):
    mask = np.array([[0, 0, 0, 1], [0, 1, 0, 1], [1, 0, 0, 0]]).astype(dtype)
    findings = check_mask(mask, (3, 2, 3, 4))
    meant = "(batch, keys)" if dtype == np.bool_ else "(queries, keys)"
    assert findings[0].startswith("ambiguous: batch and queries are both 3, and a rank-2 ")
    assert meant in findings[0]


def test_the_linter_and_the_attention_agree_on_what_is_refused():
    with pytest.raises(ValueError, match="scores_shape: expected"):
        check_mask(PADDING, (3, 5, 5))
    with pytest.raises(ValueError, match=r"tokens: expected shape \(B, S\) = \(3, 5\)"):
        check_mask(PADDING, SHAPE, TOKENS[:, :4])
    assert check_mask(tf.zeros((3, 1, 1, 5), tf.int64), SHAPE)
