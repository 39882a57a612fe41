"""A linter for attention masks: finds mistakes that raise no error but ruin a model.

Axes: B batch, N heads, T target (query) length, S source (key) length.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import blocked_scores


def check_mask(mask, scores_shape, tokens=None):
    """Describe in plain words what looks wrong with a mask.

    Checks for: a mask that does not fit the scores; an integer or additive mask; padding that may
    be attended to while tokens may not; a look-ahead mask that shows the future and hides the
    past; rows with every key blocked; a mask that blocks queries rather than keys; a mask that
    blocks nothing; an ambiguous shape.

    Args:
        mask: array or eager tensor, as for `scaled_dot_product_attention`.
        scores_shape: `(B, N, T, S)`, the shape of the scores it is for.
        tokens: None, or the ids (B, S) of the keys, 0 = padding. With them an inverted padding
            mask is detected reliably, without them only guessed.

    Returns:
        list of str, one per finding; empty if there are none.

    Raises:
        ValueError: If `scores_shape` does not have four sizes, or `tokens` is not (B, S).

    Example:
        >>> keep = tf.cast([[[[1, 1, 0]]]], tf.float32)  # 1 = may attend: not this library's way
        >>> for finding in check_mask(keep, (1, 2, 3, 3), tokens=[[7, 6, 0]]):
        ...     print(finding.split(":")[0])
        inverted
    """
    scores_shape = tuple(scores_shape)
    if len(scores_shape) != 4:
        raise ArgumentError("scores_shape", "(B, N, T, S)", scores_shape)
    padding = None
    if tokens is not None:
        padding = np.asarray(tokens) == 0
        expected = (scores_shape[0], scores_shape[3])
        if padding.shape != expected:
            raise ArgumentError("tokens", f"shape (B, S) = {expected}", padding.shape)
    if mask is None:
        return []
    mask = tf.convert_to_tensor(mask)
    findings = _of_values(mask)
    try:
        blocked = blocked_scores(mask, tf.TensorShape(scores_shape))
    except ValueError as error:
        return [*findings, str(error)]
    if findings:  # wrong values: what it blocks is not what was meant
        return findings
    blocked = np.broadcast_to(blocked.numpy(), scores_shape)
    return [*_of_shape(mask, scores_shape), *_of_meaning(blocked, padding)]


def _of_values(mask):
    if not mask.dtype.is_floating:
        return []
    values = np.unique(tf.cast(mask, tf.float64))
    if set(values) <= {0.0, 1.0}:
        return []
    shown = ", ".join(f"{value:g}" for value in values[:3])
    if values.min() < -100 and values.max() <= 0:
        return [
            f"additive: the values are {shown}, as in a mask that is added to the scores. Here 1.0 "
            f"blocks, and so does any other nonzero value; pass tf.cast(mask < 0, tf.float32)."
        ]
    return [
        f"values: expected 0.0 (may attend) and 1.0 (blocked) only, got {shown}. Any nonzero "
        f"value blocks; pass weights in between as `bias`."
    ]


def _of_shape(mask, scores_shape):
    findings = []
    batch, _, target, source = scores_shape
    if mask.shape.rank == 2 and batch == target != 1 and mask.shape == (batch, source):
        if mask.dtype == tf.bool:
            meant, other = "(batch, keys)", "a look-ahead mask is mask[tf.newaxis, tf.newaxis]"
        else:
            meant, other = "(queries, keys)", "a padding mask is mask[:, tf.newaxis, tf.newaxis]"
        findings.append(
            f"ambiguous: batch and queries are both {batch}, and a rank-2 {mask.dtype.name} mask "
            f"means {meant}; {other}."
        )
    if mask.shape.rank == 4 and mask.shape[3] == 1 != source and mask.shape[2] == target:
        findings.append(
            "transposed: the mask is the same for every key, so it blocks whole queries. A "
            "padding mask is (batch, 1, 1, keys)."
        )
    return findings


def _of_meaning(blocked, padding):
    if not blocked.any():
        return ["idle: the mask blocks nothing."]
    if blocked.all():
        return [
            "all blocked: no query may attend to anything; every output is the average of all "
            "values. Is the mask inverted?"
        ]
    if padding is not None and padding.any():
        free = ~blocked.all(axis=(1, 2))  # (B, S), keys that some query may attend to
        if free[padding].all() and not free[~padding].any():
            return [
                "inverted: padding may be attended to and tokens may not. A float 1.0 blocks, a "
                "bool True allows; pass 1 - mask, or tf.logical_not(mask)."
            ]
        if free[padding].any():
            sentence = int(np.argmax((free & padding).any(axis=1)))
            return [f"padding: sentence {sentence} may attend to its padding."]
    return [*_of_order(blocked, guess=padding is None), *_of_rows(blocked)]


def _of_order(blocked, guess):
    target, source = blocked.shape[2:]
    past = np.arange(source) < np.arange(target)[:, None]
    future = np.arange(source) > np.arange(target)[:, None]
    if target == source > 1:
        if blocked[..., past].all() and not blocked[..., future].any():
            return [
                "inverted: the future may be attended to and the past may not. A float "
                "look-ahead mask is 1.0 above the diagonal, a bool one is True on and below it."
            ]
        if blocked[..., future].all() and blocked[..., np.arange(target), np.arange(target)].all():
            return ["diagonal: no position may attend to itself; the first one sees nothing."]
    if not guess:
        return []
    same = (blocked == blocked[:, :1, :1]).all()
    rows = blocked[:, 0, 0].astype(int)  # (B, S)
    if same and (np.diff(rows, axis=1) <= 0).all() and (rows[:, 0] > rows[:, -1]).any():
        return [
            "inverted? The mask blocks the beginning of the sentences but not the end: correct if "
            "the padding comes first, inverted if it comes last."
        ]
    return []


def _of_rows(blocked):
    lonely = blocked.all(axis=3).any(axis=1)  # (B, T)
    if not lonely.any():
        return []
    sentence, query = (int(index) for index in np.argwhere(lonely)[0])
    return [
        f"lonely rows: {int(lonely.sum())} of {lonely.size} queries may attend to nothing, the "
        f"first is query {query} of sentence {sentence}; their output is the average of all values."
    ]
