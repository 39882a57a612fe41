"""A learned vector for each position.

Axes: B batch, T length, D model width.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class LearnedPositions(Positions):
    """Add a learned vector for each position, as BERT does.

    Devlin et al. 2019, "BERT", section 3, figure 2.

    Args:
        max_position: int, the number of positions.

    Raises:
        ValueError: If `max_position` is below 1, or a text is longer.

    Example:
        >>> part = LearnedPositions(5)
        >>> part.build((None, None, 4))
        >>> part.add(tf.zeros((1, 3, 4))).shape.as_list()
        [1, 3, 4]
    """

    def __init__(self, max_position, **kwargs):
        super().__init__(**kwargs)
        if max_position < 1:
            raise ArgumentError("max_position", "at least 1", max_position)
        self.max_position = max_position

    def build(self, x_shape):
        self.table = self.add_weight(
            shape=(self.max_position, x_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="table",
        )

    def add(self, x, start=0):
        """See `Positions`: the rows of the table from `start` on."""
        with tf.control_dependencies(self._length_checks(x, start)):
            table = tf.convert_to_tensor(self.table)
            codes = tf.slice(table, (start, 0), (tf.shape(x)[1], -1))  # (T, D)
        return x + tf.cast(codes, x.dtype)

    def _length_checks(self, x, start):
        expected = f"at most {self.max_position} positions, as were learned"
        remedy = "Shorten the text, or choose a larger max_position before training."
        message = f"{self.name}: expected {expected}, got more. {remedy}"
        if isinstance(start, int) and x.shape[1] is not None:
            if start + x.shape[1] > self.max_position:
                length = f"length {start + x.shape[1]}"
                raise ArgumentError("x", expected, length, remedy, place=self.name)
            return []
        end = start + tf.shape(x)[1]
        check = tf.debugging.assert_less_equal(end, self.max_position, message)
        return [] if check is None else [check]  # None in eager mode

    def get_config(self):
        return {**super().get_config(), "max_position": self.max_position}
