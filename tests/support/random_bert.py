"""BERT models of prime sizes with random weights, and their inputs."""

import numpy as np
from bert_vectors import CLASSES
from tiny_bert import randomised

from tf_transformer import bert

CONFIG = bert.BertConfig(
    vocab_size=29,
    hidden_size=14,
    num_hidden_layers=3,
    num_attention_heads=7,
    intermediate_size=11,
    max_position_embeddings=13,
    type_vocab_size=3,
    labels=("a", "b", "c", "d", "e"),
)
HEADS = sorted({cls for cls in CLASSES.values() if cls is not bert.Bert}, key=str)


def batch(batch_size=2, length=5):
    """Return inputs with padding at the end of the first row and inside the last."""
    rng = np.random.default_rng(length)
    mask = np.ones((batch_size, length), np.int32)
    mask[0, length - 2 :] = 0
    mask[-1, 1] = 0  # not only at the end
    return {
        "input_ids": rng.integers(0, CONFIG.vocab_size, mask.shape).astype(np.int32),
        "token_type_ids": rng.integers(0, 3, mask.shape).astype(np.int32),
        "attention_mask": mask,
    }


def built(cls=bert.Bert, config=CONFIG, **options):
    """Return a model with random weights."""
    return randomised(cls(config, **options))


def twin(model, **options):
    """Return a copy of the model with the same weights and other options."""
    other = type(model)(model.config, **options)
    other.build()
    other.set_weights(model.get_weights())
    return other


def tokens_only(states, mask):
    """Return the states of tokens that are not padding."""
    return np.asarray(states)[np.asarray(mask) == 1]
