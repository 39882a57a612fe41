"""BERT for text classification.

Axes: B batch, C classes.
"""

import keras

from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.classifier import classifier, classifier_dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForSequenceClassification(BertWithHead):
    """Predict the class of a text, or of a pair of texts.

    Dropout and a dense layer on the pooled output, Devlin et al. 2019, section 4.1.

    Args:
        config, unpad, jit, architecture: see `Bert`; the config must have a pooler and `labels`.

    Call arguments:
        inputs, training: see `Bert`.

    Returns:
        float32 tensor (B, C), logits in the order of `config.labels`.

    Raises:
        ValueError: If the config has no labels or no pooler; see also `Bert`.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertForSequenceClassification(BertConfig(13, 8, 2, 2, 16, labels=("no", "yes")))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 2]
    """

    published_as = "BertForSequenceClassification"
    head_scope = "classifier/"
    pooler_use = "needed"
    has_labels = True

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.dropout = classifier_dropout(self.config, self.dtype_policy)
        self.classifier = classifier(len(self.config.labels), "classifier", self.config)

    def build(self, input_shape=None):
        super().build()
        self.classifier.build((None, self.config.hidden_size))

    def head(self, outputs, training=None):
        """Compute the logits (B, C) from the outputs of `self.bert`."""
        return self.classifier(self.dropout(outputs["pooled_output"], training=training))

    def call(self, inputs, training=None):
        return self.head(self.bert(inputs, training=training), training)
