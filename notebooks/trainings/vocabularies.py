"""A small English-French translator that reads and writes words, characters or subwords.

All see the same pairs in the same batches.
"""

from functools import partial

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import (
    BPETokenizer,
    Transformer,
    WordPieceTokenizer,
    load_corpus,
    split_pairs,
)
from tf_transformer.data import BucketedBatches, group_references
from tf_transformer.tokenizers import metaspace_pipeline
from tf_transformer.tokenizers.pipeline import tokenizer_json
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile
from tf_transformer.tokenizers.training import count_words
from tf_transformer.training import score_translations
from trainings.translator import fit, translations

LONGEST = 30  # characters of either side
SIZE = 2000


def words(texts):
    """The most common words; the others are unknown."""
    pipeline = metaspace_pipeline()
    counts = count_words(texts, pipeline)
    room = SIZE - len(pipeline.special_tokens)
    tokens = [*pipeline.special_tokens, *(word for word, _ in counts.most_common(room))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = {
        "type": "WordPiece",  # without pieces
        "unk_token": pipeline.unknown,
        "continuing_subword_prefix": "\0",
        "max_input_chars_per_word": 100,
        "vocab": vocabulary,
    }
    special = {token: vocabulary[token] for token in pipeline.special_tokens}
    return WordPieceTokenizer(TokenizerFile.of(tokenizer_json(model, pipeline, special)))


def characters(texts):
    """Every character, and no merges."""
    pipeline = metaspace_pipeline()
    alphabet = set("".join(count_words(texts, pipeline)))
    size = len(alphabet) + len(pipeline.special_tokens)
    return BPETokenizer.train(texts, size, metaspace_pipeline())


TOKENIZERS = {
    "2,000 words": words,
    "characters": characters,
    "BPE": partial(BPETokenizer.train, vocab_size=SIZE),
}


def short_pairs():
    """Pairs for training and validation."""
    split = split_pairs(load_corpus("en-fr"), test_share=0.04, validation_share=0.09)
    return tuple(
        [pair for pair in part if max(map(len, pair)) <= LONGEST]
        for part in (split.train, split.validation)
    )


def unknown_share(tokenizer, texts):
    """How many of the tokens stand for something that is not in the vocabulary."""
    ids = np.concatenate(tokenizer.encode(texts))
    has_unknown = "unknown" in tokenizer.ids_of_roles
    return float(np.mean(ids == tokenizer.unknown_id)) if has_unknown else 0.0


def trained(seed, name, *, pairs=None, scored=600, epochs=6, d_model=64):
    """Train; BLEU, that of sources with rare words, nats a sentence, and shares of unknown tokens.

    Args:
        seed: int.
        name: of TOKENIZERS.
        pairs: None for all, or how many of them to train on.
        scored: int, how many sources to translate.
        epochs, d_model: ints.
    """
    keras.utils.set_random_seed(seed)
    train, validation = short_pairs()
    train = train[:pairs]
    texts = [text for pair in train for text in pair]
    tokenizer = TOKENIZERS[name](texts)
    held_out = [text for pair in validation for text in pair]
    longest = 1 + max(map(len, tokenizer.encode(texts + held_out)))

    def batches(pairs):
        sources, targets = (tokenizer.encode(list(side)) for side in zip(*pairs, strict=True))
        ends = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        return BucketedBatches(
            sources, targets, **ends, lengths=(longest,), tokens_per_batch=64 * longest
        )

    model = Transformer(
        2,
        d_model,
        4,
        4 * d_model,
        tokenizer.vocab_size,
        tokenizer.vocab_size,
        pe_input=longest,
        pe_target=2 * longest,
        share_embeddings=True,
    )
    fit(model, batches(train), epochs, d_model)

    total = count = 0
    for inputs, labels in batches(validation).epoch(0):
        logits = model(tuple(map(tf.constant, inputs)), training=False)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        total += float(tf.reduce_sum(tf.where(labels != 0, each, 0.0)))
        count += np.count_nonzero(labels[:, 0])
    sources, references = (part[:scored] for part in group_references(validation))
    found = translations(model, tokenizer, sources, longest)
    common = words(texts)
    rare = [common.unknown_id in row for row in common.encode(sources)]

    def bleu(chosen):
        rows = [n for n, one in enumerate(rare) if one in chosen]
        parts = ([part[n] for n in rows] for part in (found, references))
        return score_translations(*parts, "fr")["bleu"]

    return {
        "bleu": bleu((False, True)),
        "bleu_rare": bleu((True,)),
        "bleu_common": bleu((False,)),
        "rare": float(np.mean(rare)),
        "loss": total / count,
        "unknown_source": unknown_share(tokenizer, [source for source, _ in validation]),
        "unknown_target": unknown_share(tokenizer, [target for _, target in validation]),
        "tokens": float(np.mean([len(row) for row in tokenizer.encode(sources)])),
        "vocabulary": tokenizer.vocab_size,
        "weights": model.count_params(),
    }


VARIANTS = {name: partial(trained, name=name) for name in TOKENIZERS}
