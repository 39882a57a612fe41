"""Attention masks: the notes' helpers, the conversion between the two conventions, checks, windows.

Axes: B batch, N heads, T target (query) length, S source (key) length.

The notes mark what is *blocked* with a float 1.0; Keras and PyTorch mark what *may be attended to*
with True. The dtype of a mask determines its convention; only `blocked_scores` converts it.
"""

import functools

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.tensors import as_ids


def create_padding_mask(seq):
    """Mark the padding of a batch of token ids: 1.0 where `seq == 0`.

    Args:
        seq: integer tensor (B, T) of token ids, 0 = padding.

    Returns:
        float32 tensor (B, 1, 1, T), which broadcasts over heads and queries; 1.0 = blocked.

    Example:
        >>> create_padding_mask([[7, 6, 0]]).numpy().tolist()
        [[[[0.0, 0.0, 1.0]]]]
    """
    return padding_mask(as_ids(seq, "seq"), 0)


def padding_mask(ids, pad_id):
    """See `create_padding_mask`; None without a `pad_id`."""
    if pad_id is None:
        return None
    padding = tf.cast(tf.equal(ids, pad_id), tf.float32)
    # expand_dims rather than padding[:, None, None, :]: LiteRT cannot convert the latter.
    return tf.expand_dims(tf.expand_dims(padding, 1), 1)  # (B, 1, 1, T)


def create_look_ahead_mask(size):
    """Mark the future of every position: 1.0 strictly above the diagonal.

    Paper section 3.2.3: position t of the decoder attends to positions 0..t only.

    Args:
        size: int or scalar integer tensor, the length T.

    Returns:
        float32 tensor (T, T); row = query, column = key, 1.0 = blocked.

    Example:
        >>> create_look_ahead_mask(3).numpy().tolist()
        [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    return 1.0 - tf.linalg.band_part(tf.ones((size, size), tf.float32), -1, 0)


def create_masks(inp, tar):
    """Create the three masks of an encoder-decoder from token ids.

    Args:
        inp: integer tensor (B, S), source ids, 0 = padding.
        tar: integer tensor (B, T), target ids as the decoder reads them, 0 = padding.

    Returns:
        `(enc_padding_mask, combined_mask, dec_padding_mask)`, float32, 1.0 = blocked: (B, 1, 1, S)
        for the encoder, (B, 1, T, T) for the decoder's self-attention (the maximum of padding and
        look-ahead), (B, 1, 1, S) for the decoder's attention to the encoder.

    Example:
        >>> [m.shape.as_list() for m in create_masks([[5, 6, 0]], [[1, 7]])]
        [[1, 1, 1, 3], [1, 1, 2, 2], [1, 1, 1, 3]]
    """
    source_padding = create_padding_mask(inp)
    look_ahead = create_look_ahead_mask(tf.shape(tar)[1])
    combined = tf.maximum(create_padding_mask(tar), look_ahead)
    return source_padding, combined, source_padding


def create_sequence_to_sequence_mask(token_type_ids):
    """Mask in which segment 0 attends to itself, and segment 1 to segment 0 and its own past.

    Dong et al. 2019, "Unified Language Model Pre-training" (UniLM), section 2.3. Padding after
    segment 1 counts as segment 0: block it with a separate mask, as `UniLM` does.

    Args:
        token_type_ids: integer tensor (B, T), 0 for the first segment, 1 for the second.

    Returns:
        float32 tensor (B, 1, T, T); row = query, column = key, 1.0 = blocked.

    Example:
        >>> create_sequence_to_sequence_mask([[0, 0, 1, 1]])[0, 0].numpy().tolist()
        [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    """
    order = tf.cumsum(token_type_ids, axis=1)  # (B, T)
    later = tf.expand_dims(order, 1) > tf.expand_dims(order, 2)  # (B, T, T)
    return tf.cast(tf.expand_dims(later, 1), tf.float32)


def additive_mask(attention_mask):
    """Convert a mask to what BERT adds to the scores: 0.0 = may attend, -10000.0 = blocked.

    (1 - attention_mask) * -10000, Devlin et al. 2019, `attention_layer` in the published code.

    Args:
        attention_mask: integer tensor (B, F, T) or (B, T), 1 = may attend, or bool.

    Returns:
        float32 tensor (B, 1, F or 1, T), which broadcasts over heads.

    Raises:
        ValueError: If the mask is float, where 1.0 would mean blocked, or has another rank.

    Example:
        >>> additive_mask([[[1, 0]]]).numpy().tolist()
        [[[[0.0, -10000.0]]]]
    """
    mask = tf.convert_to_tensor(attention_mask)
    if mask.dtype.is_floating or mask.shape.rank not in (2, 3):
        expected = "integers (batch, from, to) or (batch, to), 1 = may attend"
        remedy = (
            "For a float mask with 1.0 = may attend pass tf.cast(mask, tf.int32); with "
            "1.0 = blocked pass tf.cast(1 - mask, tf.int32)."
        )
        raise ArgumentError("attention_mask", expected, f"{mask.dtype.name} {mask.shape}", remedy)
    if mask.shape.rank == 2:
        mask = tf.expand_dims(mask, 1)  # (B, 1, T)
    return tf.expand_dims((tf.cast(mask, tf.float32) - 1.0) * 10000.0, 1)  # (B, 1, F or 1, T)


def with_key_masks(mask, k, *key_masks):
    """Add Keras masks of keys and values to a mask; a key is blocked if any mask blocks it."""
    masks = () if mask is None else (mask,)
    for key_mask in {id(one): one for one in key_masks if one is not None}.values():
        check_keras_mask(key_mask, k.shape[:-1])
        masks += (tf.expand_dims(key_mask, -2),)  # (..., 1, S)
    return masks[0] if len(masks) == 1 else masks or None


def check_keras_mask(mask, shape):
    """Check a Keras mask."""
    if mask.dtype != tf.bool or not shape.is_compatible_with(mask.shape):
        expected = f"bool {tuple(shape)}, a value for each token"
        got = f"{tf.as_dtype(mask.dtype).name} {tuple(mask.shape)}"
        remedy = (
            "Put keras.layers.Masking after the embedding, not before it; pass a mask of another "
            "shape as `mask`."
        )
        raise ArgumentError("Keras mask", expected, got, remedy)


def blocked_scores(mask, scores_shape):
    """Convert a mask of either convention, or a tuple of them, to a bool mask, True = blocked.

    A float mask (the notes), 1.0 = blocked, broadcasts to the scores (..., T, S) by NumPy's rules.
    A bool mask, True = may attend (Keras, PyTorch), does too, except that (B, T, S) becomes
    (B, 1, T, S), and (B, S) always (B, 1, 1, S), even if B equals T: pass a bool look-ahead mask as
    (1, 1, T, S). Integers are refused.
    """
    if mask is None:
        return None
    if isinstance(mask, tuple):
        return functools.reduce(tf.logical_or, [blocked_scores(one, scores_shape) for one in mask])
    mask = tf.convert_to_tensor(mask)
    if mask.dtype == tf.bool:
        blocked = _spread_over_heads(tf.logical_not(mask), scores_shape.rank)
    elif mask.dtype.is_floating:
        blocked = tf.not_equal(mask, tf.zeros((), mask.dtype))
    else:
        expected = "float (1.0 = blocked) or bool (True = may attend)"
        remedy = (
            "If 1 means blocked pass tf.cast(mask, tf.float32); if 1 means may attend "
            "pass tf.cast(mask, tf.bool)."
        )
        got = f"{mask.dtype.name}, whose polarity is unknown"
        raise ArgumentError("mask", expected, got, remedy)
    if blocked.shape.rank not in (2, scores_shape.rank) or not fits(blocked.shape, scores_shape):
        expected = f"a shape that broadcasts to {named(scores_shape)}"
        remedy = (
            "A padding mask is (batch, 1, 1, keys), a look-ahead mask (queries, keys); "
            "add a head axis to a mask per sentence with tf.expand_dims(mask, 1)."
        )
        raise ArgumentError("mask", expected, f"{mask.dtype.name} {tuple(mask.shape)}", remedy)
    return blocked


def fits(shape, scores_shape):
    """Whether a static shape broadcasts to another without making it longer."""
    sizes = zip(reversed(shape), reversed(scores_shape), strict=False)
    return shape.rank <= scores_shape.rank and all(n in (1, s) or None in (n, s) for n, s in sizes)


def named(scores_shape):
    """The shape of the scores in error messages."""
    return f"the scores {tuple(scores_shape)} = (batch, heads, queries, keys)"


def _spread_over_heads(blocked, scores_rank):
    """Insert the axes that Keras masks omit: (B, S) and (B, T, S) become rank 4."""
    if blocked.shape.rank == 2 and scores_rank > 2:
        blocked = tf.expand_dims(blocked, 1)  # (B, 1, S)
    while 2 < blocked.shape.rank < scores_rank:
        blocked = tf.expand_dims(blocked, 1)  # (B, 1, T or 1, S)
    return blocked


def check_window(window):
    """Check the `window` of attention."""
    if window is not None and (type(window) is not int or window < 1):
        expected = "None or an int of at least 1, the number of keys on each side of a query"
        raise ArgumentError("window", expected, f"{window!r}")


def blocked_or_distant(blocked, window, q, k):
    """Combine a mask with a window."""
    if window is None:
        return blocked
    queries, keys = (tf.range(tf.shape(x)[-2]) for x in (q, k))
    distant = tf.abs(keys - tf.expand_dims(queries, 1)) > window  # (T, S)
    return distant if blocked is None else blocked | distant


def check_mask(mask, scores_shape, tokens=None):
    """Describe in plain words what looks wrong with a mask.

    Finds: a mask that does not fit the scores, is ambiguous, of integers or additive, inverted or
    idle, or blocks queries rather than keys; padding that is not blocked; rows without a free key.

    Args:
        mask: array or eager tensor, as for `scaled_dot_product_attention`.
        scores_shape: `(B, N, T, S)`, the shape of the scores it is for.
        tokens: None, or the ids (B, S) of the keys, 0 = padding. Without them, an inverted padding
            mask is only guessed.

    Returns:
        list of str, one per finding; empty if there are none.

    Raises:
        ValueError: If `scores_shape` does not have four sizes, or `tokens` is not (B, S).

    Example:
        >>> keep = tf.cast([[[[1, 1, 0]]]], tf.float32)  # 1 = may attend: not this library's way
        >>> check_mask(keep, (1, 2, 3, 3), tokens=[[7, 6, 0]])[0].split(":")[0]
        'inverted'
    """
    scores_shape = tuple(scores_shape)
    check(len(scores_shape) == 4, "scores_shape", "(B, N, T, S)", scores_shape)
    padding = None
    if tokens is not None:
        padding = np.asarray(tokens) == 0
        expected = (scores_shape[0], scores_shape[3])
        check(padding.shape == expected, "tokens", f"shape (B, S) = {expected}", padding.shape)
    if mask is None:
        return []
    mask = tf.convert_to_tensor(mask)
    findings = [*_of_values(mask)]
    try:
        blocked = blocked_scores(mask, tf.TensorShape(scores_shape))
    except ValueError as error:
        return [*findings, str(error)]
    if findings:  # with wrong values, it does not block what was meant
        return findings
    blocked = np.broadcast_to(blocked.numpy(), scores_shape)
    return [*_of_shape(mask, scores_shape), *_of_meaning(blocked, padding)]


def _of_values(mask):
    values = np.unique(tf.cast(mask, tf.float64)) if mask.dtype.is_floating else ()
    if set(values) <= {0.0, 1.0}:
        return
    shown = ", ".join(f"{value:g}" for value in values[:3])
    if values.min() < -100 and values.max() <= 0:
        yield (
            f"additive: the values are {shown}, as in a mask that is added to the scores. Here 1.0 "
            f"blocks, and so does any other nonzero value; pass tf.cast(mask < 0, tf.float32)."
        )
    else:
        yield (
            f"values: expected 0.0 (may attend) and 1.0 (blocked) only, got {shown}. Any nonzero "
            f"value blocks; pass weights in between as `bias`."
        )


def _of_shape(mask, scores_shape):
    batch, _, target, source = scores_shape
    if mask.shape.rank == 2 and batch == target != 1 and mask.shape == (batch, source):
        if mask.dtype == tf.bool:
            meant, other = "(batch, keys)", "a look-ahead mask is mask[tf.newaxis, tf.newaxis]"
        else:
            meant, other = "(queries, keys)", "a padding mask is mask[:, tf.newaxis, tf.newaxis]"
        yield (
            f"ambiguous: batch and queries are both {batch}, and a rank-2 {mask.dtype.name} mask "
            f"means {meant}; {other}."
        )
    if mask.shape.rank == 4 and mask.shape[3] == 1 != source and mask.shape[2] == target:
        yield (
            "transposed: the mask is the same for every key, so it blocks whole queries. A "
            "padding mask is (batch, 1, 1, keys)."
        )


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
