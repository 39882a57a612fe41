"""The last layer of classification heads, and what becomes of its logits."""

import keras
import tensorflow as tf

from tf_transformer.layers.dropout import Dropout


def classifier(num_classes, name, config):
    """Create a dense layer for logits, in float32 under any policy, since a softmax follows."""
    return keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        name=name,
        dtype="float32",
    )


def classifier_dropout(config, dtype):
    """Create the dropout layer before a classifier."""
    rate = config.classifier_dropout
    return Dropout(config.hidden_dropout_prob if rate is None else rate, dtype=dtype)


def answers_of(logits, config):
    """Make answers of the logits (B, C) of a text classifier, float32 (B, C)."""
    if config.answers == "linear":
        return {"values": logits}
    function = tf.nn.sigmoid if config.answers == "sigmoid" else tf.nn.softmax
    return {"probabilities": function(logits)}
