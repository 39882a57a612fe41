"""Parameter counts, including those of the published sizes."""

import numpy as np
import pytest
from tiny_bert import CONFIG

from tf_transformer import bert
from tf_transformer.models.bert.bert_config import PUBLISHED_CONFIGS

pytestmark = pytest.mark.one_of(10, "bert")


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
    assert parts["layer normalizations"] == 2 * (7 + 4 * 12)
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
    # Turc et al. 2019, table 1, without the pretraining heads.
    assert table(bert.Bert(bert.published_config(name)))["all"] / 1e6 == pytest.approx(
        millions, abs=0.06
    )


def test_refuses_an_unknown_name():
    with pytest.raises(ValueError, match="name: expected one of bert-tiny,.* got 'bert-bass'"):
        bert.published_config("bert-bass")
    assert set(PUBLISHED_CONFIGS) >= {"bert-base", "bert-large", "albert-base"}


@pytest.mark.slow
def test_parameters_of_bert_base():
    model = bert.Bert(bert.BertConfig())
    model.build()
    sizes = {name: int(np.prod(v.shape)) for name, v in model.variables_by_name().items()}

    def total(*parts):
        return sum(size for name, size in sizes.items() if any(part in name for part in parts))

    tables = total("word_embeddings", "position_embeddings", "token_type_embeddings")
    assert tables == (30522 + 512 + 2) * 768 == 23_835_648
    assert total("bert/embeddings") == 23_837_184
    assert total("/self/", "attention/output/dense") == 28_348_416  # with the biases
    assert total("/self/query/kernel") * 4 == 28_311_552  # without
    assert total("intermediate/dense/kernel", "/output/dense/kernel") - 12 * 768**2 == 56_623_104
    assert total("LayerNorm") == 25 * 2 * 768 == 38_400
    assert sum(sizes.values()) == 109_482_240


@pytest.mark.one_of(6)
@pytest.mark.parametrize(
    "width, layers, heads, expected",
    [(768, 12, 12, 11_683_584), (1024, 24, 16, 17_683_968), (2048, 24, 16, 58_724_864)],
    ids=["base", "large", "xlarge"],
)
def test_parameters_of_albert(width, layers, heads, expected):
    # Published: 12M, 18M, 60M (Lan et al. 2020, table 1).
    config = bert.BertConfig(
        30000,
        width,
        layers,
        heads,
        4 * width,
        "gelu_new",
        0,
        0,
        embedding_size=128,
        num_hidden_groups=1,
    )
    model = bert.Bert(config)
    model.build()
    assert model.count_params() == expected


@pytest.mark.parametrize(
    "name, heads",
    [
        ("bert-tiny", 2),
        ("bert-small", 8),
        ("bert-base", 12),
        ("bert-large", 16),
        ("albert-base", 12),
        ("albert-large", 16),
        ("albert-xlarge", 16),
        ("albert-xxlarge", 64),
    ],
)
def test_heads_of_the_published(name, heads):
    assert bert.published_config(name).num_attention_heads == heads
