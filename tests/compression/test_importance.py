"""The importance of heads and units against finite differences, and the choice by it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Transformer, create_padding_mask
from tf_transformer.bert import BertConfig, BertForSequenceClassification
from tf_transformer.compression import (
    head_confidence,
    head_importance,
    least_important,
    prune_gradually,
    unit_importance,
)
from tf_transformer.compression.pruning import attention_sites, network_sites
from tf_transformer.training import SmoothedCrossentropy

pytestmark = pytest.mark.one_of(10, "models")


def translator():
    model = Transformer(2, 8, 2, 5, 11, 13, 20, 20)
    model.compile(loss=SmoothedCrossentropy(0.0))
    model.build()
    rng = np.random.default_rng(2)
    batches = []
    for rows, length in ((3, 7), (2, 5)):
        inp, tar, y = (rng.integers(1, 11, (rows, n)) for n in (length, 4, 4))
        inp[0, 3:], y[1, 2:] = 0, 0
        batches.append(((inp, tar), y))
    return randomize(model, 1), batches


def classifier():
    config = BertConfig(19, 8, 2, 2, 5, labels=("a", "b", "c"), hidden_act="tanh")
    model = BertForSequenceClassification(config)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.build()
    rng = np.random.default_rng(3)
    mask = (np.arange(7) < np.array([[7], [4], [2]])).astype(int)
    x = {"input_ids": rng.integers(1, 19, (3, 7)), "attention_mask": mask}
    return randomize(model, 1), [(x, rng.integers(0, 3, 3)), (x, rng.integers(0, 3, 3))]


def loss_of(model):
    """The loss of a batch as a function: a graph, since it is called hundreds of times."""
    return tf.function(
        lambda x, y: model.compute_loss(x, y, model(x, training=False), training=False),
        reduce_retracing=True,
        autograph=False,
    )


def with_gate(loss, site, n, gate, x, y):
    """The loss when one head or unit counts `gate` times."""
    kernel = site.after.kernel
    before = kernel.numpy()
    kernel.assign(
        np.concatenate(
            [[before[i] * (gate if i // site.width == n else 1.0)] for i in range(len(before))]
        )
    )
    try:
        return float(loss(x, y))
    finally:
        kernel.assign(before)


def rows_of(batches):
    for x, y in batches:
        for n in range(len(y)):
            yield tf.nest.map_structure(lambda t, n=n: tf.constant(t[n : n + 1]), (x, y))


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("make", [translator, classifier])
@pytest.mark.parametrize("kind", ["heads", "units"])
def test_the_gradient_is_that_of_a_gate(make, kind):
    model, batches = make()
    sites = {"heads": attention_sites, "units": network_sites}[kind](model)
    measure = {"heads": head_importance, "units": unit_importance}[kind]
    before = [weight.numpy() for weight in model.weights]
    found = measure(model, batches)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert list(found) == list(sites)
    step, examples, loss = 3e-3, list(rows_of(batches)), loss_of(model)
    for name, layers in sites.items():
        for layer, site in enumerate(layers):
            slopes = [
                [
                    with_gate(loss, site, n, 1 + step, x, y)
                    - with_gate(loss, site, n, 1 - step, x, y)
                    for x, y in examples
                ]
                for n in range(site.count)
            ]
            expected = np.abs(np.array(slopes) / (2 * step)).mean(1)
            np.testing.assert_allclose(found[name][layer], expected, rtol=5e-3, atol=1e-4)
            assert expected.max() > 1e-3


@pytest.mark.slow
def test_ablation_is_the_rise_of_the_loss():
    model, batches = translator()
    found = head_importance(model, batches, by="ablation")
    rows = np.array([len(y) for _, y in batches])

    def mean(losses):
        return np.dot(list(losses), rows) / rows.sum()

    loss = loss_of(model)
    batches = tf.nest.map_structure(tf.constant, batches)
    whole = mean(float(loss(*batch)) for batch in batches)
    for name, layers in attention_sites(model).items():
        for layer, site in enumerate(layers):
            for n in range(site.count):
                without = mean(with_gate(loss, site, n, 0.0, *batch) for batch in batches)
                np.testing.assert_allclose(found[name][layer][n], without - whole, atol=1e-5)


@pytest.mark.slow
def test_confidence():
    model, batches = translator()
    found = head_confidence(model, batches)
    assert head_importance(model, batches, by="confidence")["cross"][1] == pytest.approx(
        found["cross"][1]
    )
    for name, key in (("encoder", "encoder_layer2"), ("cross", "decoder_layer2_block2")):
        largest = []
        for (inp, tar), _ in batches:
            _, weights = model((inp, tar), training=False, return_attention_weights=True)
            mask = create_padding_mask(inp)
            weights |= model.encoder(inp, False, mask, return_attention_weights=True)[1]
            tokens = (inp if name == "encoder" else tar) != 0
            largest.append(weights[key].numpy().max(-1).transpose(0, 2, 1)[tokens])
        np.testing.assert_allclose(found[name][1], np.concatenate(largest).mean(0), rtol=1e-5)
    model, batches = classifier()
    found = head_confidence(model, batches)["encoder"][0]
    attentions = model.bert(batches[0][0], return_attentions=True)["attentions"][0].numpy()
    tokens = batches[0][0]["attention_mask"] == 1
    expected = attentions.max(-1).transpose(0, 2, 1)[tokens].mean(0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_least_important_of_all_layers():
    importance = {
        "encoder": [np.array([3.0, 4.0]), np.array([0.3, 0.1, 0.2])],
        "cross": [np.array([1.0, 50.0])],
    }
    chosen = least_important(importance, 3 / 7)
    assert chosen == {"encoder": {1: [1, 2]}, "cross": {0: [0]}}
    chosen = least_important(importance, 3 / 7, relative=False)
    assert chosen == {"encoder": {1: [1, 2]}, "cross": {0: [0]}}
    assert least_important(importance, 4 / 7)["encoder"] == {0: [0], 1: [1, 2]}
    assert least_important(importance, 0) == {"encoder": {}, "cross": {}}
    for share in (-0.1, 1.0, 5 / 7):
        with pytest.raises(ValueError, match="share: expected"):
            least_important(importance, share)
    importance["cross"][0][1] = np.nan
    with pytest.raises(ValueError, match=r"importance: expected finite numbers.*\('cross', 0\)"):
        least_important(importance, 3 / 7)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_several_steps(steps):
    model, batches = classifier()
    seen = []

    def train(smaller):
        smaller.compile(keras.optimizers.Adam(0.01), loss=model.loss)
        smaller.fit(*batches[0], verbose=0)
        seen.append(sum(heads for heads, _ in smaller.config.layer_sizes))

    smaller = prune_gradually(model, batches, train, heads=0.5, steps=steps)
    assert seen == {1: [2], 3: [3, 3, 2]}[steps]
    assert smaller.config.layer_sizes == ((1, 5), (1, 5))


def test_bad_input():
    model, batches = classifier()
    with pytest.raises(ValueError, match="by: expected gradient, ablation or confidence, got 'x'"):
        head_importance(model, batches, by="x")
    for by in ("gradient", "ablation", "confidence"):
        with pytest.raises(ValueError, match="batches: expected at least one"):
            head_importance(model, [], by=by)
    with pytest.raises(ValueError, match="steps: expected at least 1, got 0"):
        prune_gradually(model, batches, print, heads=0.5, steps=0)
    with pytest.raises(ValueError, match="heads, units: expected a share above 0"):
        prune_gradually(model, batches, print)
    trained = []
    for shares in ({"heads": 1.5}, {"heads": 0.9}, {"units": -0.1}, {"units": float("nan")}):
        with pytest.raises(ValueError, match=f"{next(iter(shares))}: share: expected"):
            prune_gradually(model, batches, trained.append, **shares, steps=4)
    assert not trained
    other = BertForSequenceClassification(model.config)
    other.build()
    with pytest.raises(ValueError, match="model: expected a compiled model"):
        head_importance(other, batches)
