"""BERT with the parts of an `Architecture`: its files, its configs, and what does not fit."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from bert_choices import (
    ALBERT,
    CHOICES,
    CONFIG,
    INPUTS,
    PADDING,
    close,
    every_choice,
    made,
)

from tf_transformer import (
    Architecture,
    LearnedPositions,
    RotaryPositions,
    T5Positions,
    additive_mask,
    bert,
)
from tf_transformer.models.bert.attention import PaddedLayout
from tf_transformer.models.bert.encoder import BertLayer
from tf_transformer.models.bert.heads import BertLMHead

pytestmark = pytest.mark.one_of(10)  # of the cases of each test


@pytest.mark.one_of(10)
@every_choice
def test_a_folder_holds_the_architecture(choice, tmp_path):
    model = made(choice, bert.BertForSequenceClassification, ALBERT)
    model.save_pretrained(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "config.json").read_text())
    assert content["model_type"] == "tf_transformer_bert"
    again = bert.BertForSequenceClassification.from_pretrained(tmp_path / "model")
    assert again.architecture == choice and again.config == model.config
    close(again.get_weights(), model.get_weights(), 0)
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))
    encoder = bert.Bert.from_pretrained(tmp_path / "model", unpad=True)  # without the head
    encoder.save_pretrained(tmp_path / "encoder")
    new = bert.BertForTokenClassification.from_pretrained(
        tmp_path / "encoder", new_head=True, labels=("c", "d", "e")
    )
    close(new.bert.encoder.get_weights(), model.bert.encoder.get_weights(), 0)


@pytest.mark.one_of(10)
@every_choice
def test_a_keras_file_and_a_config_hold_the_architecture(choice, tmp_path):
    model = made(choice, bert.BertForMaskedLM)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.architecture == again.bert.encoder.architecture == choice
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-5)
    layer = model.bert.encoder.groups[0]
    for part in (model.bert.embeddings, model.bert.encoder, layer, layer.attention):
        config = json.loads(json.dumps(part.get_config()))
        assert type(part).from_config(config).get_config() == config


def test_a_config_holds_the_positions_of_a_layer():
    layer = BertLayer(CONFIG, architecture=Architecture(), positions=RotaryPositions(base=500.0))
    again = BertLayer.from_config(json.loads(json.dumps(layer.get_config())))
    assert again.attention.positions.base == 500.0


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="architecture"):  # of Keras: a head has none
        BertLMHead(CONFIG, architecture=Architecture())
    with pytest.raises(ValueError, match="architecture: expected None or an Architecture, got {}"):
        bert.Bert(CONFIG, architecture={})
    with pytest.raises(ValueError, match="at least 7 positions, .* got 6 of LearnedPositions"):
        bert.Bert(CONFIG, architecture=Architecture(LearnedPositions(6)))
    with pytest.raises(ValueError, match="num_key_value_heads: expected a divisor of num_heads=4"):
        bert.Bert(CONFIG, architecture=Architecture(num_key_value_heads=3))
    with pytest.raises(ValueError, match="RotaryPositions: expected an even head width"):
        made(Architecture(RotaryPositions(), key_dim=3))(INPUTS)
    layer = BertLayer(CONFIG, architecture=Architecture(T5Positions(6, 5)))
    layer.build((None, 24))
    with pytest.raises(ValueError, match="bias: expected None, since T5Positions adds its own"):
        layer.forward(tf.ones((21, 24)), PaddedLayout(3, 7), bias=additive_mask(PADDING))


def test_wrong_folders(tmp_path):
    made(CHOICES["paper"]).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="architecture: expected none for Bert.from_pretrained"):
        bert.Bert.from_pretrained(tmp_path / "model", architecture=Architecture())
    path = tmp_path / "model" / "config.json"
    content = json.loads(path.read_text())
    for wrong, message in (
        ("rotary", "architecture: expected a dict in .*config.json, got 'rotary'"),
        ({"norm": {"part": "Norm"}}, "norm: expected a part among"),
        ({"positions": {"part": "LearnedPositions", "max_position": 9}}, "nothing was loaded"),
        (None, "nothing was loaded"),
    ):
        path.write_text(json.dumps({**content, "architecture": wrong}))
        with pytest.raises(ValueError, match=message):
            bert.Bert.from_pretrained(tmp_path / "model")
