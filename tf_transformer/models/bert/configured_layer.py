"""A layer created from a `BertConfig`."""

import keras

from tf_transformer.layers.base_layer import NotesLayer
from tf_transformer.models.bert.bert_config import BertConfig


@keras.saving.register_keras_serializable(package="tf_transformer")
class ConfiguredLayer(NotesLayer, keras.layers.Layer):
    """Base class for the parts of BERT: `self.config`, and a Keras config that contains it."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.of(config)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
