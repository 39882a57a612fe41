"""What a student should have in common with its teacher, as losses.

Axes: B batch, T length, N heads, D width, C classes or vocabulary. Masks are float (B,) or (B, T),
0 for what does not count, such as padding.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.cross_entropy import softened_divergence


def soft_target_loss(logits, teacher_logits, temperature=1.0, mask=None):
    """Mean divergence of a student's softened predictions from its teacher's.

    temperature^2 KL(softmax(teacher / temperature) || softmax(student / temperature)), Hinton et
    al. 2015, "Distilling the Knowledge in a Neural Network", section 2; for the tokens of a
    translation Kim and Rush 2016, section 3.1.
    """
    return _mean(softened_divergence(logits, teacher_logits, temperature), mask)


def hidden_state_loss(states, teacher_states, mask=None):
    """Mean squared difference of hidden states.

    Jiao et al. 2020, "TinyBERT", equation 8; a narrower student's states are projected first.
    """
    if states.shape[-1] != teacher_states.shape[-1]:
        raise ArgumentError(
            "states", f"the teacher's width, {teacher_states.shape[-1]}", states.shape[-1]
        )
    states, teacher_states = (tf.cast(x, tf.float32) for x in (states, teacher_states))
    return _mean(tf.reduce_mean(tf.math.squared_difference(states, teacher_states), -1), mask)


def attention_loss(weights, teacher_weights, mask=None):
    """Mean divergence of the heads' attention from the teacher's.

    KL(teacher || student) for each query and head, Wang et al. 2020, "MiniLM", equation 6.
    TinyBERT's equation 7 compares the scores before the softmax, which the attention core does not
    return.
    """
    if weights.shape[1] != teacher_weights.shape[1]:
        raise ArgumentError(
            "weights",
            f"the teacher's number of heads, {teacher_weights.shape[1]}",
            weights.shape[1],
        )
    weights, teacher_weights = (tf.cast(x, tf.float32) for x in (weights, teacher_weights))
    # x log x is 0 for a blocked key, of which the student makes 0 too.
    each = tf.math.xlogy(teacher_weights, teacher_weights)
    each -= teacher_weights * tf.math.log(tf.maximum(weights, 1e-9))
    return _mean(tf.reduce_mean(tf.reduce_sum(each, -1), 1), mask)


def _mean(each, mask):
    if mask is None:
        return tf.reduce_mean(each)
    mask = tf.cast(mask, tf.float32)
    return tf.math.divide_no_nan(tf.reduce_sum(each * mask), tf.reduce_sum(mask))
