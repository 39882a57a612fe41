"""Counting parameters, of the published sizes too."""

import pytest
from tiny_bert import CONFIG

from tf_transformer import bert
from tf_transformer.models.bert.published_configs import PUBLISHED_CONFIGS


def table(model):
    model.build()
    return bert.parameter_table(model)


def test_every_parameter_is_in_one_part():
    config = bert.BertConfig.of({**CONFIG.to_dict(), "embedding_size": 7})
    model = bert.BertForPreTraining(config)
    parts = table(model)
    assert sum(parts.values()) == 2 * parts["all"] == 2 * model.count_params()
    assert parts["embeddings: words, positions, segments"] == (config.vocab_size + 11 + 2) * 7
    assert parts["mapping of the embeddings"] == 7 * 12 + 12
    assert parts["attention: matrices of q, k, v and output"] == 2 * 4 * 12 * 12
    assert parts["feed-forward: matrices"] == 2 * 2 * 12 * 17
    assert parts["layer normalisations"] == 2 * (7 + 4 * 12)
    assert parts["biases of attention and feed-forward"] == 2 * (5 * 12 + 17)
    assert parts["pooler"] == 12 * 12 + 12


def test_shared_layers_count_once():
    whole, shared = (
        table(bert.Bert(bert.BertConfig.of({**CONFIG.to_dict(), "num_hidden_groups": groups})))
        for groups in (None, 1)
    )
    part = "feed-forward: matrices"
    assert whole[part] == 2 * shared[part]


@pytest.mark.parametrize(
    "name, millions", [("bert-tiny", 4.4), ("bert-mini", 11.2), ("bert-small", 28.8)]
)
def test_published_sizes(name, millions):
    # Turc et al. 2019, table 1, without the heads of pretraining.
    assert table(bert.Bert(bert.published_config(name)))["all"] / 1e6 == pytest.approx(
        millions, abs=0.06
    )


def test_refuses_an_unknown_name():
    with pytest.raises(ValueError, match="name: expected one of bert-tiny,.* got 'bert-bass'"):
        bert.published_config("bert-bass")
    assert set(PUBLISHED_CONFIGS) >= {"bert-base", "bert-large", "albert-base"}
