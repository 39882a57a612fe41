"""No positions."""

import keras

from tf_transformer.layers.positions.positions import Positions


@keras.saving.register_keras_serializable(package="tf_transformer")
class NoPositions(Positions):
    """Tell nothing about the order of tokens, to compare with the parts that do.

    Without a mask self-attention is then blind to order: permuting the tokens permutes the outputs.

    Example:
        >>> NoPositions().add(tf.ones((1, 2, 3))).numpy().sum()
        np.float32(6.0)
    """
