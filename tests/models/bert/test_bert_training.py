"""Training-only behavior: dropout, each rate separately, and random initialization."""

import numpy as np
import pytest
from random_bert import CONFIG, batch, built

from tf_transformer import Dropout, bert

pytestmark = pytest.mark.one_of(10, "runs")

OFF = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}


def model_with(cls=bert.BertForSequenceClassification, **rates):
    return built(cls, bert.BertConfig.of({**CONFIG.to_dict(), **OFF, **rates}))


def changes(model, call):
    """Whether training mode changes the output; in inference it must never change."""
    np.testing.assert_array_equal(call(False), call(False))
    return bool((np.asarray(call(True)) != np.asarray(call(False))).any())


@pytest.mark.parametrize("rate", [None, *OFF])
def test_each_rate_acts_by_itself(rate):
    model = model_with(**({rate: 0.5} if rate else {}))
    assert changes(model, lambda training: model(batch(), training=training)) == bool(rate)


def test_the_rate_of_a_classifier_is_the_hidden_one_without_its_own():
    model = model_with(hidden_dropout_prob=0.5, classifier_dropout=None)
    assert model.dropout.rate == 0.5


def test_dropout_of_every_sublayer():
    """Tests each layer separately, with the rates of all others set to 0."""
    model = model_with(hidden_dropout_prob=0.5)
    dropouts = [layer for layer in model.bert._flatten_layers() if isinstance(layer, Dropout)]
    assert len(dropouts) == 1 + 2 * CONFIG.num_hidden_layers  # embeddings, and two in each layer
    for one in dropouts:
        for layer in dropouts:
            layer.rate = 0.5 if layer is one else 0.0
        assert changes(model, lambda training: model(batch(), training=training)), one


@pytest.mark.parametrize("deviation", [0.02, 0.3])
def test_the_random_start(deviation):
    config = bert.BertConfig.of({**CONFIG.to_dict(), "initializer_range": deviation})
    model = bert.BertForPreTraining(config)
    model.build()
    for name, variable in model.variables_by_name().items():
        values = np.asarray(variable)
        if name.endswith(("kernel", "embeddings")):
            assert np.abs(values).max() <= 2 * deviation * 1.14, name  # truncated, then rescaled
            if values.size > 100:
                assert values.std() == pytest.approx(deviation, rel=0.25), name
        else:
            assert (values == (1 if name.endswith("gamma") else 0)).all(), name
