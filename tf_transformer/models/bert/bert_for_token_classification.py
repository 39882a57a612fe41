"""BERT for token classification.

Axes: B batch, T length, C classes.
"""

import keras

from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.classifier import classifier, classifier_dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForTokenClassification(BertWithHead):
    """Predict a class for each token, for example named entities or parts of speech.

    Dropout and a dense layer on each token's vector, Devlin et al. 2019, section 5.3.

    Its labels are (B, T), from 0, and -100 where a token has none, as in Hugging Face's data:
    special tokens, padding, and all but the first token of a word. `compile` gives -100 to losses
    and metrics whose `ignore_class` is "auto": `SmoothedCrossentropy`, `MaskedAccuracy`. Keras's
    loss needs `SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)`.

    Args:
        config, unpad, jit, architecture: see `Bert`; the config must have `labels`.

    Call arguments:
        inputs, training: see `Bert`.

    Returns:
        float32 tensor (B, T, C), logits in the order of `config.labels`.

    Raises:
        ValueError: If the config has no labels; see also `Bert`.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertForTokenClassification(BertConfig(13, 8, 2, 2, 16, labels=("no", "yes")))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 3, 2]
    """

    published_as = "BertForTokenClassification"
    head_scope = "classifier/"
    has_labels = True
    ignore_class = -100

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.dropout = classifier_dropout(self.config, self.dtype_policy)
        self.classifier = classifier(len(self.config.labels), "classifier", self.config)

    def build(self, input_shape=None):
        super().build()
        self.classifier.build((None, self.config.hidden_size))

    def head(self, outputs, training=None):
        """Compute the logits (B, T, C) from the outputs of `self.bert`."""
        return self.classifier(self.dropout(outputs["sequence_output"], training=training))

    def call(self, inputs, training=None):
        return self.head(self.bert(inputs, training=training), training)
