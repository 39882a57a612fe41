"""BERT for extractive question answering.

Axes: B batch, T length.
"""

import keras
import tensorflow as tf

from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.classifier import classifier


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForQuestionAnswering(BertWithHead):
    """Predict where an answer starts and ends in a text.

    Devlin et al. 2019, section 4.2: the question is segment 0, the text segment 1.

    Args:
        config, unpad, jit, architecture: see `Bert`.

    Call arguments:
        inputs, training: see `Bert`.

    Returns:
        dict of float32 logits: `start_logits` (B, T) and `end_logits` (B, T).

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertForQuestionAnswering(BertConfig(13, 8, 2, 2, 16))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])})["start_logits"].shape.as_list()
        [1, 3]
    """

    published_as = "BertForQuestionAnswering"
    head_scope = "cls/squad/"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.squad = classifier(2, "squad", self.config)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.squad.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        logits = self.squad(self.bert(inputs, training=training)["sequence_output"])  # (B, T, 2)
        start, end = tf.unstack(logits, axis=-1)
        return {"start_logits": start, "end_logits": end}
