"""A BERT small enough for unit tests, with a vocabulary, in Hugging Face's layout."""

import numpy as np

from tf_transformer import bert

WORDS = tuple("a good bad film was the plot 好 坏 电影 ##s ##ly un ##known .".split())  # noqa: SIM905
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = bert.BertConfig(
    vocab_size=len(TOKENS),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=17,
    max_position_embeddings=11,
)


def randomised(model, seed=5):
    """Build the model and give it random weights."""
    model.build()
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def tiny_folder(folder):
    """Write a checkpoint and its vocab.txt; return the folder."""
    randomised(bert.Bert(CONFIG)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", "utf-8")
    return folder
