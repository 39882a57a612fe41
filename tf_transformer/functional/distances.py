"""What published models make of the distance between two positions.

Axes: N heads, D distances.
"""

import numpy as np


def t5_buckets(distances, num_buckets, max_distance, causal):
    """The bucket of each distance: one for each short one, shared ones for longer ones.

    Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
    Transformer", section 2.1: half of the buckets belong to one distance each, the others grow
    logarithmically up to `max_distance`. Without `causal` half of all buckets are for keys after
    the query.
    """
    distances = np.asarray(distances, np.int64)
    first = 0
    if causal:
        distances = np.maximum(-distances, 0)
    else:
        num_buckets //= 2
        first, distances = np.where(distances > 0, num_buckets, 0), np.abs(distances)
    exact = num_buckets // 2
    # float32, as the published models have it: where the logarithm is a whole number it matters.
    ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact))
    ratio = ratio / np.float32(np.log(max_distance / exact))
    longer = exact + (ratio * np.float32(num_buckets - exact)).astype(np.int64)
    return first + np.where(distances < exact, distances, np.minimum(longer, num_buckets - 1))


def alibi_slopes(num_heads):
    """How much each head's scores fall for each position of distance.

    2^(-8 n / N) for n = 1..N if N is a power of two; otherwise those of the next smaller power,
    then every other one of twice that power. Press et al. 2022, "Train Short, Test Long", section
    3, and the authors' code.
    """
    power = 2 ** int(np.log2(num_heads))

    def slopes(count):
        return 2.0 ** (-8.0 / count * np.arange(1, count + 1))

    others = slopes(2 * power)[0::2][: num_heads - power]
    return np.concatenate([slopes(power), others]).astype(np.float32)
