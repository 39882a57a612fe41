"""Sentence vectors of a MiniLM with keras-hub's `BertBackbone`."""

import functools

import keras
import keras_hub
import tensorflow as tf

from benchmarks.bert.peers.batches import as_batches


def variants(case, arrays):
    """In a graph. XLA would compile for every new shape, which is nearly every batch."""
    backbone = keras_hub.models.BertBackbone.from_preset(case["model"], dtype=case["dtype"])
    for layer in backbone.transformer_layers:
        # keras-hub approximates GELU with tanh; this checkpoint was trained with the exact one.
        gelu = functools.partial(keras.activations.gelu, approximate=False)
        layer._feedforward_intermediate_dense.activation = gelu
    batches = as_batches(arrays, tf.constant)
    shape = tf.TensorSpec((None, None), tf.int32)

    @tf.function(input_signature=[shape, shape], autograph=False)
    def encode(ids, mask):
        inputs = {"token_ids": ids, "segment_ids": tf.zeros_like(ids), "padding_mask": mask}
        states = tf.cast(backbone(inputs)["sequence_output"], tf.float32)
        weights = tf.expand_dims(tf.cast(mask, tf.float32), -1)
        return tf.math.l2_normalize(tf.reduce_sum(states * weights, axis=1), axis=-1)

    return {"keras-hub": lambda: [encode(*batch).numpy() for batch in batches]}
