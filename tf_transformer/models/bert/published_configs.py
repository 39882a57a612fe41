"""Configurations of the published models, by name."""

from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert.bert_config import BertConfig


def _bert(layers, width, vocab_size=30522):
    return BertConfig(vocab_size, width, layers, max(1, width // 64), 4 * width)


def _albert(layers, width, heads):
    return BertConfig(
        30000,
        width,
        layers,
        heads,
        4 * width,
        "gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        embedding_size=128,
        num_hidden_groups=1,
    )


# BERT: Devlin et al. 2019, section 3, and Turc et al. 2019, "Well-Read Students Learn Better",
# table 1; ALBERT: Lan et al. 2020, table 1, without dropout as in version 2.
PUBLISHED_CONFIGS = {
    "bert-tiny": _bert(2, 128),
    "bert-mini": _bert(4, 256),
    "bert-small": _bert(4, 512),
    "bert-medium": _bert(8, 512),
    "bert-base": _bert(12, 768),
    "bert-large": _bert(24, 1024),
    "bert-base-chinese": _bert(12, 768, 21128),
    "albert-base": _albert(12, 768, 12),
    "albert-large": _albert(24, 1024, 16),
    "albert-xlarge": _albert(24, 2048, 16),
    "albert-xxlarge": _albert(12, 4096, 64),
}


def published_config(name):
    """Return the configuration of a published model, uncased English unless the name differs.

    Args:
        name: str, a key of `PUBLISHED_CONFIGS`.

    Returns:
        `BertConfig`.

    Raises:
        ValueError: If the name is unknown.

    Example:
        >>> published_config("bert-base").hidden_size
        768
    """
    if name not in PUBLISHED_CONFIGS:
        raise ArgumentError("name", f"one of {', '.join(PUBLISHED_CONFIGS)}", f"{name!r}")
    return PUBLISHED_CONFIGS[name]
