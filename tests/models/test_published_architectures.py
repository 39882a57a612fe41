"""Published architectures: numbers of weights, names, models."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Architecture, MultiHeadAttention, Transformer, architectures, bert
from tf_transformer.models.architectures import named

pytestmark = pytest.mark.one_of(10, "layers")


def shapes_only(published):
    """Count the weights of a model without allocating it: linear in layers and vocabulary."""

    def count(num_layers, vocab_size):
        small = dataclasses.replace(published, num_layers=num_layers, vocab_size=vocab_size)
        return small.model().count_params()

    base = count(1, 1)
    layer, word = count(2, 1) - base, count(1, 2) - base
    return base + (published.num_layers - 1) * layer + (published.vocab_size - 1) * word


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    ("name", "exact", "tolerance"),
    [
        ("transformer-base", 63_082_496, 0.03),  # published in millions
        ("transformer-big", 214_245_376, 0.006),
        ("transformer-tiny", 2_566_656, 0.02),
        ("macaron-base", 63_102_976, 0.03),
        ("gpt2", 124_439_808, 0.004),
    ],
)
def test_weights_of_translators_and_language_models(name, exact, tolerance):
    published = architectures.get(name)
    assert shapes_only(published) == exact
    assert abs(exact / published.weights - 1) < tolerance


@pytest.mark.parametrize(
    ("name", "exact"), [("bert-base", 109_482_240), ("albert-base", 11_683_584)]
)
def test_weights_of_encoders(name, exact):
    published = architectures.get(name)
    table = bert.parameter_table
    with bert_without_drawing():
        model = published.model()
    assert isinstance(model, bert.Bert) and sum(table(model).values()) >= exact
    assert model.count_params() == exact
    assert abs(exact / published.weights - 1) < 0.03


def bert_without_drawing():
    from tf_transformer.models.bert.attention import without_drawing

    return without_drawing()


def test_a_published_architecture_is_an_architecture():
    published = architectures.get("macaron-base")
    assert isinstance(published, Architecture)
    assert Architecture.from_json(published.to_json()) == published.choices() == published
    model = published.model(vocab_size=11)
    layer = model.encoder.enc_layers[0]
    assert isinstance(layer.mha, MultiHeadAttention) and layer.ffn_before is not None
    assert len(model.decoder.dec_layers) == 6 and layer.rate == 0.1
    small = Transformer(1, 8, 2, 8, 11, 11, 9, 9, architecture=published)
    inputs = tf.constant([[3, 4, 2]]), tf.constant([[1, 5]])
    again = Transformer.from_config(small.get_config())
    again.build()
    assert np.isfinite(small(inputs)).all()
    assert again.count_params() == small.count_params()
    tiny = architectures.get("transformer-tiny")
    assert architectures.get("transformer-tiny").choices() == Architecture() == tiny.choices()
    assert named(tiny.to_dict(), tiny.sizes) == "transformer-tiny"
    assert named(tiny.to_dict(), {}) is None


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"did you mean 'transformer-base'\?"):
        architectures.get("transformer-bse")
    with pytest.raises(ValueError, match="expected one of transformer-base, .*got 'xyz'.$"):
        architectures.get("xyz")
