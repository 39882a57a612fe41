"""The last layer of every head that classifies."""

import keras

from tf_transformer.layers.dropout import Dropout


def classifier(num_classes, name, config):
    """A new dense layer to logits, in float32 whatever the policy, since a softmax follows.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> classifier(3, "classifier", BertConfig())(tf.ones((2, 8))).shape.as_list()
        [2, 3]
    """
    return keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        name=name,
        dtype="float32",
    )


def classifier_dropout(config, dtype):
    """The dropout before a classifier.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> classifier_dropout(BertConfig(classifier_dropout=0.3), "float32").rate
        0.3
    """
    rate = config.classifier_dropout
    return Dropout(config.hidden_dropout_prob if rate is None else rate, dtype=dtype)
