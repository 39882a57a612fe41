"""A pruned model gives what the whole one gives without the outputs of what is gone."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import Transformer
from tf_transformer.bert import Bert, BertConfig, BertForSequenceClassification
from tf_transformer.compression import prune_heads, pruned
from tf_transformer.compression.pruning import attention_sites, network_sites
from tf_transformer.layers import Architecture
from tf_transformer.layers.feed_forwards import GatedFeedForward, MacaronFeedForward
from tf_transformer.layers.positions import (
    AlibiPositions,
    RotaryPositions,
    ShawPositions,
    T5Positions,
)
from tf_transformer.layers.residuals import PreNorm

pytestmark = pytest.mark.one_of(10, "models")

ROTARY = Architecture(
    positions=RotaryPositions(), residual=PreNorm(), feed_forward=GatedFeedForward("silu")
)
# Dimensions that differ, lengths that are prime; 5 x 4 is not the model's width.
WIDE = Architecture(key_dim=4, share_qk=True, positions=ShawPositions(3))
HEADS = {"encoder": {1: [0, 2]}, "decoder": {0: [3]}, "cross": {0: [1], 1: [0, 2, 3]}}
UNITS = {"encoder": {0: [2, 5, 6]}, "decoder": {1: range(3, 13)}}


def transformer(architecture=None, num_heads=4, num_layers=2, **options):
    model = Transformer(
        num_layers, 24, num_heads, 13, 11, 17, 20, 20, architecture=architecture, **options
    )
    model.build()
    return randomize(model, 1)


def pairs():
    rng = np.random.default_rng(2)
    source, target = rng.integers(1, 11, (3, 7)), rng.integers(1, 17, (3, 5))
    source[0, 4:], target[1, 3:] = 0, 0
    return tf.constant(source), tf.constant(target)


def bert(architecture=None, **config):
    model = BertForSequenceClassification(
        BertConfig(19, 24, 3, 4, 13, labels=("a", "b", "c"), **config), architecture=architecture
    )
    model.build()
    return randomize(model, 1)


def texts():
    rng = np.random.default_rng(3)
    mask = np.arange(7) < np.array([[7], [4], [1]])
    return {"input_ids": tf.constant(rng.integers(1, 19, (3, 7))), "attention_mask": mask}


def silence(sites, choice):
    """Multiply the outputs of some heads or units by 0."""
    for name, layers in choice.items():
        for n, numbers in layers.items():
            site = sites[name][n]
            kernel = site.after.kernel.numpy().reshape(site.count, site.width, -1)
            kernel[list(numbers)] = 0
            site.after.kernel.assign(kernel.reshape(site.after.kernel.shape))


def same(model, smaller, inputs):
    expected = model(inputs, training=False)
    np.testing.assert_allclose(smaller(inputs, training=False), expected, atol=1e-5, rtol=1e-4)
    assert np.ptp(expected) > 1


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("architecture", "num_heads"), [(None, 4), (ROTARY, 4), (WIDE, 5)], ids=str
)
def test_a_transformer(architecture, num_heads):
    model = transformer(architecture, num_heads)
    before = [weight.numpy() for weight in model.weights]
    smaller = pruned(model, heads=HEADS, units=UNITS)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
    sites = attention_sites(model)
    assert [site.count for site in attention_sites(smaller)["cross"]] == [
        num_heads - 1,
        num_heads - 3,
    ]
    assert [site.count for site in network_sites(smaller)["encoder"]] == [10, 13]
    untouched = model(pairs(), training=False)
    assert not np.allclose(smaller(pairs(), training=False), untouched, atol=1e-2)
    silence(sites, HEADS)
    silence(network_sites(model), UNITS)
    same(model, smaller, pairs())


@pytest.mark.one_of(10)
@pytest.mark.parametrize("architecture", [None, ROTARY], ids=["BERT", "rotary"])
@pytest.mark.parametrize("groups", [None, 2])
def test_bert(architecture, groups):
    model = bert(architecture, num_hidden_groups=groups)
    heads, units = {"encoder": {0: [1], 1: [0, 3]}}, {"encoder": {1: [0, 12]}}
    smaller = pruned(model, heads=heads, units=units)
    assert smaller.config.layer_sizes[:2] == ((3, 13), (2, 11))
    silence(attention_sites(model), heads)
    silence(network_sites(model), units)
    same(model, smaller, texts())
    unpadded = type(model).from_config({**smaller.get_config(), "unpad": True})
    unpadded.build()
    unpadded.set_weights(smaller.get_weights())
    same(smaller, unpadded, texts())


def test_layers():
    model = transformer(ROTARY, num_layers=(3, 2))
    smaller = pruned(model, heads={"encoder": {0: [1], 2: [3]}}, layers={"encoder": [0, 1]})
    assert smaller.get_config()["num_layers"] == (1, 2)
    assert smaller.get_config()["layer_sizes"]["encoder"] == ((3, 13),)
    silence(attention_sites(model), {"encoder": {2: [3]}})
    model.encoder.enc_layers = model.encoder.enc_layers[2:]
    same(model, smaller, pairs())
    model = bert()
    smaller = pruned(model, layers={"encoder": [1]})
    assert smaller.config.num_hidden_layers == 2
    outputs = model.bert(texts(), return_hidden_states=True)["hidden_states"]
    np.testing.assert_allclose(
        smaller.bert(texts(), return_hidden_states=True)["hidden_states"][1], outputs[1], atol=1e-5
    )


def test_pruned_twice_is_pruned_at_once():
    model = transformer()
    once = pruned(model, heads={"encoder": {0: [0, 3]}}, units={"decoder": {1: [1, 4]}})
    first = pruned(model, heads={"encoder": {0: [3]}}, units={"decoder": {1: [1]}})
    twice = pruned(first, heads={"encoder": {0: [0]}}, units={"decoder": {1: [3]}})
    for one, other in zip(once.weights, twice.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_decoding_with_a_cache():
    model = prune_heads(transformer(ROTARY), HEADS)
    inp, tar = pairs()[0], tf.constant([[1, 5, 3, 9, 2]] * 3)
    expected, state = model((inp, tar), training=False), model.start(inp, 5)
    for n in range(5):
        logits, state = model.step(tar[:, n], state)
        np.testing.assert_allclose(logits, expected[:, n], atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("make", [transformer, bert])
def test_it_trains_and_is_saved(make, tmp_path):
    smaller = prune_heads(make(), {"encoder": {0: [1], 1: [0, 2]}})
    x = pairs() if make is transformer else texts()
    y = tf.ones((3, 5) if make is transformer else 3, tf.int32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    smaller.compile(keras.optimizers.Adam(0.01), loss)
    losses = [smaller.train_on_batch(x, y) for _ in range(4)]
    assert losses[-1] < losses[0]
    smaller.save(tmp_path / "model.keras")
    same(smaller, keras.models.load_model(tmp_path / "model.keras"), x)


ALBERT = {"embedding_size": 5, "num_hidden_groups": 3}


@pytest.mark.parametrize(
    ("config", "units", "kind"),
    [
        ({}, {}, "bert"),
        ({}, {"encoder": {2: [1]}}, "tf_transformer_bert"),
        (ALBERT, {}, "tf_transformer_bert"),
    ],
)
def test_a_folder_of_a_pruned_bert(config, units, kind, tmp_path):
    smaller = pruned(bert(**config), heads={"encoder": {0: [1], 2: [0, 2]}}, units=units)
    smaller.save_pretrained(tmp_path / "bert")
    assert json.loads((tmp_path / "bert" / "config.json").read_text())["model_type"] == kind
    again = BertForSequenceClassification.from_pretrained(tmp_path / "bert")
    assert again.config == smaller.config
    same(smaller, again, texts())


def test_sizes_that_do_not_fit():
    for options, message in (
        ({"num_heads": 5}, "expected d_model to be a multiple of num_heads"),
        ({"layer_sizes": {"encoder": [[1, 2]], "decoder": [[1, 1, 2]] * 2}}, "each of the 2 la"),
        ({"layer_sizes": {"encoder": [[1, 2]] * 2}}, 'a dict with "encoder" and "decoder"'),
        ({"num_layers": (1, 2, 3)}, "num_layers: expected an int, or"),
    ):
        sizes = {"encoder": [[1, 2]] * 2, "decoder": [[1, 1, 2]] * 2}
        with pytest.raises(ValueError, match=message):
            transformer(**{"layer_sizes": sizes, **options})


LESS = {"encoder": {0: [0]}}


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("make", "choice", "message"),
    [
        (
            transformer,
            {"heads": {"crosss": {}}},
            "heads: expected keys among encoder, decoder, cro",
        ),
        (bert, {"heads": {"cross": {}}}, "heads: expected keys among encoder, got 'cross'"),
        (
            bert,
            {"heads": {"encoder": {3: [0]}}},
            r"heads\['encoder'\]: expected layers from 0 to 2",
        ),
        (
            bert,
            {"heads": {"encoder": {0: [4]}}},
            r"\['encoder'\]\[0\]: expected numbers from 0 to 3",
        ),
        (bert, {"heads": {"encoder": {0: range(4)}}}, "at least one to remain, got all 4"),
        (bert, {"heads": {"encoder": {0: [1.5]}}}, r"expected numbers from 0 to 3, got \[1.5\]"),
        (bert, {"units": {"encoder": {1: range(13)}}}, r"units\['encoder'\]\[1\]: .* all 13"),
        (transformer, {"layers": {"decoder": [0, 1]}}, r"layers\['decoder'\]: .* got all 2"),
        (lambda: bert(num_hidden_groups=2), {"layers": LESS["encoder"]}, "expected keys among"),
        (lambda: bert(num_hidden_groups=2), {"layers": {"encoder": [0]}}, "got an ALBERT"),
        (
            lambda: transformer(Architecture(positions=T5Positions())),
            {"layers": {"encoder": [0]}},
            "expected layers with weights of their own, got shared ones",
        ),
        (
            lambda: transformer(Architecture(positions=T5Positions())),
            {"heads": LESS},
            "expected positions without numbers for each head, got T5Positions",
        ),
        (
            lambda: transformer(Architecture(positions=AlibiPositions())),
            {"heads": LESS},
            "AlibiPos",
        ),
        (
            lambda: transformer(Architecture(num_key_value_heads=2)),
            {"heads": LESS},
            "expected heads with keys of their own, got grouped-query attention",
        ),
        (
            lambda: transformer(Architecture(feed_forward=MacaronFeedForward())),
            {"units": LESS},
            "expected one feed-forward network in each layer, got two",
        ),
        (lambda: keras.Sequential(), {"heads": LESS}, "expected a Transformer or a BERT model"),
        (lambda: Bert(BertConfig(19, 24, 3, 4, 13)), {"heads": LESS}, "was not built yet"),
    ],
)
def test_bad_input(make, choice, message):
    with pytest.raises(ValueError, match=message):
        pruned(make(), **choice)
