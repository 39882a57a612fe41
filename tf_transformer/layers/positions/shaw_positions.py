"""Relative positions as vectors that are added to keys and values.

Axes: B batch, N heads, T query length, H head width, D distances.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class ShawPositions(Positions):
    """Add a learned vector to each key and another to each value, for their distance to the query.

    e_ts = q_t (k_s + a^K_{s-t}) / sqrt(H), z_t = sum_s w_ts (v_s + a^V_{s-t}), with distances
    clipped to -m..m. Shaw et al. 2018, "Self-Attention with Relative Position Representations",
    equations 3 to 5. The heads of a layer share the vectors; every layer has its own.

    Args:
        max_distance: int m, at least 1.

    Raises:
        ValueError: If `max_distance` is below 1.

    Example:
        >>> part = ShawPositions(max_distance=3)
        >>> part.build((None, 2, None, 4))
        >>> terms = part.by_distance(tf.ones((1, 2, 5, 4)), 5, causal=False)
        >>> terms.keys.shape.as_list(), terms.values.shape.as_list()
        ([7, 4], [7, 4])
    """

    def __init__(self, max_distance, **kwargs):
        super().__init__(**kwargs)
        if max_distance < 1:
            raise ArgumentError("max_distance", "at least 1", max_distance)
        self.max_distance = max_distance

    def build(self, heads_shape):
        shape = 2 * self.max_distance + 1, heads_shape[-1]
        self.keys, self.values = (
            self.add_weight(shape=shape, initializer="glorot_uniform", autocast=False, name=name)
            for name in ("keys", "values")
        )

    def by_distance(self, q, keys, causal):
        """See `Positions`: the vectors of keys and of values."""
        del q, keys, causal
        keys, values = (tf.convert_to_tensor(table) for table in (self.keys, self.values))
        return ByDistance(keys=keys, values=values)

    def for_layer(self):
        """Return a new part of the same size: every layer has its own vectors."""
        return self.copy(name=self.name)

    def get_config(self):
        return {**super().get_config(), "max_distance": self.max_distance}
