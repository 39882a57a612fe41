"""AdamW with layer-wise learning rates, against float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import CONFIG, randomised

from tf_transformer import LayerwiseAdamW, bert

RATE, DECAY, LAYER_DECAY = 0.01, 0.1, 0.7


def expected_steps(value, gradients, rate, decay):
    """Adam with bias correction, then decoupled decay of the previous value."""
    m = v = np.zeros_like(value)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        corrected = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        value = value - rate * decay * value - corrected * m / (np.sqrt(v) + 1e-7)
    return value


def factor(name):
    """The learning rate of a variable of the two-layer model, relative to the head's."""
    for piece, above in (("layer_1/", 1), ("layer_0/", 2), ("embeddings", 3), ("mapping_in", 3)):
        if piece in name:
            return LAYER_DECAY**above
    return 1.0


def test_every_variable_has_its_rate_and_its_decay():
    config = bert.BertConfig.of({**CONFIG.to_dict(), "labels": ("a", "b"), "embedding_size": 5})
    model = randomised(bert.BertForSequenceClassification(config))
    variables = model.trainable_variables
    before = [np.asarray(v, np.float64) for v in variables]
    rng = np.random.default_rng(1)
    gradients = [[rng.standard_normal(v.shape) for v in variables] for _ in range(3)]
    optimizer = LayerwiseAdamW(RATE, weight_decay=DECAY, layer_decay=LAYER_DECAY)
    for step in gradients:
        optimizer.apply([tf.constant(g, tf.float32) for g in step], variables)
    seen = set()
    for variable, start, *steps in zip(variables, before, *gradients, strict=True):
        leaf = variable.path.rsplit("/", 1)[-1]
        decay = 0.0 if leaf in ("bias", "gamma", "beta") else DECAY
        rate = RATE * factor(variable.path)
        seen.add((round(rate, 6), decay))
        np.testing.assert_allclose(variable, expected_steps(start, steps, rate, decay), atol=2e-6)
    assert len(seen) == 8  # four rates, each with and without decay


@pytest.mark.parametrize("value", [0, 1.1, -0.5])
def test_refuses(value):
    with pytest.raises(ValueError, match="layer_decay: expected a number in"):
        LayerwiseAdamW(layer_decay=value)


def test_config():
    optimizer = LayerwiseAdamW(RATE, weight_decay=0.3, layer_decay=0.8, clipnorm=1.0)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert (again.decay, again.layer_decay, again.clipnorm) == (0.3, 0.8, 1.0)
