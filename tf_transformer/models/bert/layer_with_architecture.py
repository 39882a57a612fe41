"""A layer created from a `BertConfig` and, if given, an `Architecture`."""

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.architecture import Architecture, with_architecture
from tf_transformer.models.bert.configured_layer import ConfiguredLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerWithArchitecture(ConfiguredLayer):
    """Base class for the parts of BERT that depend on an `Architecture`."""

    def __init__(self, config, *, architecture=None, **kwargs):
        super().__init__(config, **kwargs)
        if architecture is not None and not isinstance(architecture, Architecture):
            raise ArgumentError(
                "architecture",
                "None or an Architecture",
                f"{architecture!r}",
                "For a dict use Architecture.from_dict.",
            )
        self.architecture = architecture

    def get_config(self):
        choice = self.architecture
        return {**super().get_config(), "architecture": choice and choice.to_dict()}

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))
