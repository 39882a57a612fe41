"""Layer normalisation with the name and arguments used in the notes."""

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.models.bert.bert_config import BertConfig


@keras.saving.register_keras_serializable(package="tf_transformer")
class BERTLayerNorm(LayerNorm):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta over the last axis.

    Ba et al. 2016, "Layer Normalization", equation 4. Same as `layers.LayerNorm`, with BERT's
    epsilon and the width given by the config.

    Args:
        config: `BertConfig`, or its dict; `hidden_size` is used.
        variance_epsilon: float, added to the variance.

    Call arguments:
        inputs: float tensor (..., hidden_size).

    Returns:
        Tensor of the shape of `inputs`.

    Raises:
        ValueError: If the input has another width.

    Example:
        >>> norm = BERTLayerNorm(BertConfig(hidden_size=2, num_attention_heads=1))
        >>> norm(tf.constant([[1.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(self, config, variance_epsilon=1e-12, **kwargs):
        super().__init__(variance_epsilon, **kwargs)
        self.config = BertConfig.of(config)

    def build(self, input_shape):
        if input_shape[-1] != self.config.hidden_size:
            raise ArgumentError(
                "inputs",
                f"width {self.config.hidden_size} (hidden_size of the config)",
                f"shape {tuple(input_shape)}",
            )
        super().build(input_shape)

    def get_config(self):
        config = super().get_config()
        epsilon = config.pop("epsilon")
        return {**config, "config": self.config.to_dict(), "variance_epsilon": epsilon}
