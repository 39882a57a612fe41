"""Means over tokens do not depend on how the tokens were batched.

Axes: B batch, T length, V vocabulary.
"""

import keras
import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import close
from tensorflow.python.eager import context

from tf_transformer import (
    LanguageModel,
    MaskedAccuracy,
    Perplexity,
    SmoothedCrossentropy,
    TokenCrossentropy,
)

rng = np.random.default_rng(3)
IDS = np.where(np.arange(6) < [[6], [1], [2], [5], [1], [4]], rng.integers(1, 11, (6, 6)), 0)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    model = LanguageModel(1, 6, 3, 10, 11, 8, rate=0.0)
    model.build()
    for weight in model.trainable_variables:
        weight.assign(rng.normal(0, 0.7, weight.shape))
    return model


@pytest.mark.slow
def test_evaluate_is_the_same_for_all_sizes_of_a_batch(model):
    metrics = [TokenCrossentropy(), Perplexity(), MaskedAccuracy()]
    model.compile(loss=SmoothedCrossentropy(0.0), weighted_metrics=metrics, jit_compile=False)
    logits = model(IDS).numpy()
    expected, _ = ref.weighted_cross_entropy(IDS, logits, ignored=0)
    losses = set()
    for size in (1, 2, 4, 6):
        found = model.evaluate(IDS, IDS, batch_size=size, verbose=0, return_dict=True)
        close(found["token_loss"], expected)
        close(found["perplexity"], np.exp(expected))
        close(found["accuracy"], ref.masked_accuracy(IDS, logits))
        losses.add(round(found["loss"], 3))
    assert len(losses) > 2  # Keras's mean of the batches' means


def test_weights_and_smoothing(model):
    logits, weights = model(IDS).numpy(), rng.uniform(0.1, 2, 6).astype("float32")
    _, expected = ref.weighted_cross_entropy(IDS, logits, weights[:, None], ignored=0)
    plain, smooth = TokenCrossentropy(), TokenCrossentropy(0.3)
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        plain.update_state(IDS[rows], logits[rows], weights[rows])
        smooth.update_state(IDS[rows], logits[rows])
    close(plain.result(), expected)
    close(smooth.result(), ref.label_smoothed_cross_entropy(IDS, logits, 0.3)[1])
    plain.reset_state()
    assert np.isnan(plain.result())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(model, dtype):
    logits = tf.cast(model(IDS), dtype)
    expected, _ = ref.weighted_cross_entropy(IDS, tf.cast(logits, tf.float64), ignored=0)
    close(TokenCrossentropy()(IDS, logits), expected)


def test_beside_the_loss_the_logits_are_read_once(model):
    """The graph optimizer merges the passes of a loss and of metrics."""

    @tf.function(autograph=False)
    def step(labels, logits):
        loss = SmoothedCrossentropy(0.1)(labels, logits)
        for metric in metrics:
            metric.update_state(labels, logits)
        return loss

    metrics = [MaskedAccuracy(), TokenCrossentropy(), Perplexity()]
    labels, logits = tf.constant(IDS), model(IDS)
    context.enable_run_metadata()
    try:
        step(labels, logits)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    calls = [
        [node for node in graph.node if "_parts" in node.attr["f"].func.name]
        for one in graphs
        for graph in (one.pre_optimization_graph, one.post_optimization_graph)
    ]
    assert [len(nodes) for nodes in calls][:2] == [4, 1]


def test_they_go_through_a_config():
    for metric in (
        TokenCrossentropy(0.3, ignore_class=-100),
        Perplexity(name="mine", ignore_class=None),
        MaskedAccuracy(ignore_class=5),
    ):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        assert again.get_config() == metric.get_config()


def test_a_smoothing_that_is_no_share_is_refused():
    with pytest.raises(ValueError, match="label_smoothing: expected 0 <= value < 1, got 1"):
        TokenCrossentropy(1)
