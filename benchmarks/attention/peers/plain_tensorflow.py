"""Attention without a library: a plain TensorFlow graph, and only its two matrix products."""

import tensorflow as tf


def bare(q, k, v):
    """The two products, without softmax and scale."""
    return tf.matmul(tf.matmul(q, k, transpose_b=True), v)


def plain(q, k, v):
    """softmax(Q K^T / sqrt(d)) V."""
    scores = tf.matmul(q, k, transpose_b=True) * q.shape[-1] ** -0.5
    return tf.matmul(tf.nn.softmax(scores), v)


def causal(q, k, v):
    """`plain` with future positions masked."""
    scores = tf.matmul(q, k, transpose_b=True) * q.shape[-1] ** -0.5
    length = q.shape[2]
    future = tf.range(length) > tf.range(length)[:, None]
    return tf.matmul(tf.nn.softmax(tf.where(future, tf.cast(-1e9, scores.dtype), scores)), v)


def timed(attend, case, arrays, **options):
    """A function that runs `attend` forward, or forward and backward, on the case's inputs."""
    names = ("q", "k", "v", "g")
    q, k, v, g = (tf.cast(tf.constant(arrays[name]), case["dtype"]) for name in names)

    @tf.function(autograph=False, **options)
    def run(q, k, v, g):
        if case["task"] == "forward":
            return (attend(q, k, v),)
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            output = attend(q, k, v)
        # With the output: an unused forward pass would be pruned from the graph.
        gradients = tape.gradient(output, (q, k, v), g, unconnected_gradients="zero")
        return output, *gradients

    # Tensors, not arrays: `numpy()` copies, and on a CPU the call has already waited.
    return lambda: [tf.cast(tensor, tf.float32) for tensor in run(q, k, v, g)]


def attention(case):
    """The formula, causal or not."""
    return causal if case["causal"] else plain


def variants(case, arrays):
    """Functions by name."""
    functions = {"TensorFlow": timed(attention(case), case, arrays)}
    if not case["causal"]:
        functions["bare products"] = timed(bare, case, arrays)
    return functions
