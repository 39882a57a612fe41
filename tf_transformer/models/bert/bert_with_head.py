"""BERT with a head."""

import keras

from tf_transformer.models.bert.bert import Bert
from tf_transformer.models.bert.pretrained_bert import PretrainedBert


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertWithHead(PretrainedBert):
    """Base class with `Bert` as `self.bert`; a subclass adds its head and `call`."""

    def __init__(self, config, *, unpad=False, jit="auto", architecture=None, **kwargs):
        options = {"unpad": unpad, "jit": jit, "architecture": architecture}
        super().__init__(config, **options, **kwargs)
        self.bert = Bert(self.config, **options, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.bert.build()
