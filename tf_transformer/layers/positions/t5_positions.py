"""The relative positions of T5.

Axes: N heads, D distances.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.distances import t5_buckets
from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class T5Positions(Positions):
    """Add a learned number to a score, for the bucket of its distance and the head.

    Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
    Transformer", section 2.1. All layers of a stack share the numbers.

    Args:
        num_buckets: int, even, at least 4.
        max_distance: int, more than half of the buckets: longer distances share a bucket.

    Raises:
        ValueError: If a number is out of range.

    Differs from T5: attention here divides the products of queries and keys by sqrt(H), T5 does
    not.

    Example:
        >>> part = T5Positions(num_buckets=8, max_distance=16)
        >>> part.build((None, 2, None, 4))
        >>> part.by_distance(tf.ones((1, 2, 3, 4)), 5, causal=True).scores.shape.as_list()
        [2, 33]
    """

    def __init__(self, num_buckets=32, max_distance=128, **kwargs):
        super().__init__(**kwargs)
        if num_buckets < 4 or num_buckets % 2 or max_distance <= num_buckets // 2:
            raise ArgumentError(
                "num_buckets, max_distance",
                "an even number of at least 4, and more than half of it",
                f"{num_buckets} and {max_distance}",
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance

    def build(self, heads_shape):
        # No autocast, here and in other parts: scores stay float32 under a mixed-precision policy.
        self.table = self.add_weight(
            shape=(heads_shape[1], self.num_buckets),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
            name="table",
        )

    def by_distance(self, q, keys, causal):
        """See `Positions`: the numbers of the buckets, up to `max_distance`."""
        del q, keys
        distances = np.arange(-self.max_distance, self.max_distance + 1)
        buckets = t5_buckets(distances, self.num_buckets, self.max_distance, causal)
        table = tf.convert_to_tensor(self.table)
        return ByDistance(tf.gather(table, buckets, axis=1))  # (N, D)

    def get_config(self):
        config = {"num_buckets": self.num_buckets, "max_distance": self.max_distance}
        return {**super().get_config(), **config}
