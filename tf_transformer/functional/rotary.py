"""Rotary positions: pairs of columns turned by an angle that grows with the position.

Axes: B batch, N heads, T length, H head width.
"""

import tensorflow as tf

PAIRINGS = ("interleaved", "halves")


def rotate(heads, positions, base=10000.0, stretch=1.0, pairing="interleaved"):
    """Turn each pair of columns by its angle; a product of two depends on their distance alone.

    (x_1, x_2) -> (x_1 cos a - x_2 sin a, x_1 sin a + x_2 cos a) with a = position / stretch /
    base^(2i / H) for pair i, Su et al. 2021, "RoFormer", section 3.2.2. `stretch` interpolates
    between the positions of training, Chen et al. 2023, "Extending Context Window of Large Language
    Models via Positional Interpolation", section 2.3.

    Args:
        heads: float tensor (..., T, H), H even: queries or keys.
        positions: int tensor (T,).
        base: float; a larger one makes all angles but the first smaller.
        stretch: float, at least 1 for texts longer than those of training.
        pairing: "interleaved" pairs columns 2i and 2i + 1, as the paper; "halves" pairs i and
            i + H / 2, as GPT-NeoX and LLaMA.

    Returns:
        Tensor like `heads`; angles are computed in float64, products in float32 or wider.

    Example:
        >>> quarter = 3.14159265 / 2
        >>> turned = rotate(tf.constant([[1.0, 0.0]]), tf.constant([1]), stretch=1 / quarter)
        >>> turned.numpy().round(3).tolist()
        [[0.0, 1.0]]
    """
    width = heads.shape[-1]
    wide = tf.float64 if heads.dtype == tf.float64 else tf.float32
    exponent = tf.range(0, width, 2, tf.float64) / width
    # In float32 the angle of position 16,384 would be off by 0.001.
    angles = tf.expand_dims(tf.cast(positions, tf.float64) / stretch, 1) / base**exponent
    cosine, sine = (tf.cast(f(angles), wide) for f in (tf.cos, tf.sin))  # (T, H / 2)
    x = tf.cast(heads, wide)
    if pairing == "interleaved":
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = tf.split(x, 2, axis=-1)
    turned = first * cosine - second * sine, first * sine + second * cosine
    if pairing == "interleaved":
        turned = tf.reshape(tf.stack(turned, axis=-1), tf.shape(x))
    else:
        turned = tf.concat(turned, axis=-1)
    turned.set_shape(heads.shape)
    return tf.cast(turned, heads.dtype)
