"""Adam for fine-tuning: layer-wise learning rates, weight decay for kernels only."""

import re

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.training.optimizers.fused_adam import FusedAdam

# Scales and shifts are not decayed.
_WITHOUT_DECAY = ("bias", "output_bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerwiseAdamW(FusedAdam):
    """`FusedAdam` with decoupled weight decay and lower learning rates for lower layers.

    w <- w - rate_l (Adam's step + weight_decay w), rate_l = rate * layer_decay^(layers above it):
    the head and the pooler have the full rate, the embeddings the lowest. Loshchilov and Hutter
    2019, "Decoupled Weight Decay Regularization"; the layer-wise rates are from Howard and Ruder
    2018, "Universal Language Model Fine-tuning", section 3.2. Biases and layer normalisation are
    not decayed, as in BERT's published code.

    Args:
        learning_rate, beta_1, ...: same as in `keras.optimizers.Adam`.
        weight_decay: float, applied to kernels and embeddings.
        layer_decay: float in (0, 1]; 1 gives all layers the same rate.

    Raises:
        ValueError: If `layer_decay` is outside (0, 1].

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(LayerwiseAdamW(1e-3, weight_decay=0.01), "mse")
        >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    """

    def __init__(self, learning_rate=1e-4, *, weight_decay=0.01, layer_decay=1.0, **kwargs):
        if not 0 < layer_decay <= 1:
            raise ArgumentError("layer_decay", "a number in (0, 1]", layer_decay)
        super().__init__(learning_rate, **kwargs)
        self.decay = weight_decay  # Keras's own decays before the step, at the same rate for all
        self.layer_decay = layer_decay

    def build(self, variables):
        depths = [_layer_number(variable.path) for variable in variables]
        top = max([depth for depth in depths if depth is not None], default=0) + 1
        self._factors = [
            self.layer_decay ** (0 if depth is None else top - depth) for depth in depths
        ]
        self._decays = [
            0.0 if variable.path.rsplit("/", 1)[-1] in _WITHOUT_DECAY else self.decay
            for variable in variables
        ]
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        rate = learning_rate * self._factors[index]
        if self._decays[index]:
            value = variable.value if isinstance(variable, keras.Variable) else variable
            value.assign_sub(value * tf.cast(rate * self._decays[index], value.dtype))
        super().update_step(gradient, variable, rate)

    def get_config(self):
        config = super().get_config()
        return {**config, "weight_decay": self.decay, "layer_decay": self.layer_decay}


def _layer_number(path):
    """The layer number of a variable: 0 for the embeddings, None for the pooler or a head."""
    if "embeddings/" in path or "embedding_hidden_mapping_in" in path:
        return 0
    found = re.search(r"encoder/layer_(\d+)/", path)
    return int(found[1]) + 1 if found else None
