"""The last layer of classification heads, and what becomes of its logits."""

import keras
import tensorflow as tf

from tf_transformer.layers.dropout import Dropout


def classifier(num_classes, name, config):
    """Create a dense layer for logits, in float32 under any policy, since a softmax follows.

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
    """Create the dropout layer before a classifier.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> classifier_dropout(BertConfig(classifier_dropout=0.3), "float32").rate
        0.3
    """
    rate = config.classifier_dropout
    return Dropout(config.hidden_dropout_prob if rate is None else rate, dtype=dtype)


def answers_of(logits, config):
    """Make answers of the logits (B, C) of a text classifier, float32 (B, C).

    Args:
        logits: float tensor (B, C).
        config: `BertConfig`; see its `answers`.

    Returns:
        dict with one tensor: `probabilities`, or `values` of a regression.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> config = BertConfig(labels=("a", "b"), problem_type="multi_label_classification")
        >>> answers_of(tf.constant([[0.0, 9.0]]), config)["probabilities"].numpy().round(2).tolist()
        [[0.5, 1.0]]
    """
    if config.answers == "linear":
        return {"values": logits}
    function = tf.nn.sigmoid if config.answers == "sigmoid" else tf.nn.softmax
    return {"probabilities": function(logits)}
