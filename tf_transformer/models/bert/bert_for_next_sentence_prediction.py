"""BERT for next sentence prediction.

Axes: B batch.
"""

import keras

from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.classifier import classifier


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForNextSentencePrediction(BertWithHead):
    """Predict whether the second segment follows the first.

    Devlin et al. 2019, section 3.1, task 2.

    Args:
        config, unpad, jit, architecture: see `Bert`; the config must have a pooler.

    Call arguments:
        inputs, training: see `Bert`; `token_type_ids` mark the segments.

    Returns:
        float32 tensor (B, 2), logits: 0 = it follows, 1 = it is a random segment.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertForNextSentencePrediction(BertConfig(13, 8, 2, 2, 16))
        >>> ids, types = tf.constant([[2, 7, 3, 5, 3]]), tf.constant([[0, 0, 0, 1, 1]])
        >>> model({"input_ids": ids, "token_type_ids": types}).shape.as_list()
        [1, 2]
    """

    published_as = "BertForNextSentencePrediction"
    head_scope = "cls/seq_relationship/"
    pooler_use = "needed"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.seq_relationship = classifier(2, "seq_relationship", self.config)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.seq_relationship.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        return self.seq_relationship(self.bert(inputs, training=training)["pooled_output"])
