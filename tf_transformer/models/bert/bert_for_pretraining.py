"""BERT for pretraining.

Axes: B batch, T length, P masked positions, V vocabulary.
"""

import keras

from tf_transformer.models.bert.bert_for_masked_lm import BertForMaskedLM, split_positions
from tf_transformer.models.bert.classifier import classifier


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForPreTraining(BertForMaskedLM):
    """Predict masked words, and whether the second segment follows the first.

    Devlin et al. 2019, section 3.1, both tasks.

    Args:
        config, unpad, jit, architecture: see `Bert`; the config must have a pooler.

    Call arguments:
        inputs, training: see `BertForMaskedLM`.

    Returns:
        dict of float32 logits: `prediction_logits` (B, T, V) or (B, P, V), and
        `seq_relationship_logits` (B, 2): 0 = it follows, 1 = it is a random segment.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertForPreTraining(BertConfig(13, 8, 2, 2, 16))
        >>> logits = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> logits["seq_relationship_logits"].shape.as_list()
        [1, 2]
    """

    published_as = "BertForPreTraining"
    head_scope = "cls/"
    pooler_use = "needed"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.seq_relationship = classifier(2, "seq_relationship", self.config)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.seq_relationship.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        inputs, positions = split_positions(inputs)
        outputs = self.bert(inputs, training=training)
        return {
            "prediction_logits": self.word_logits(outputs["sequence_output"], positions),
            "seq_relationship_logits": self.seq_relationship(outputs["pooled_output"]),
        }
