"""Fill-mask as a SavedModel: the likeliest tokens of `BertForMaskedLM`."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import CONFIG, TOKENS, randomised, tiny_folder

from tf_transformer import MaskFiller, bert
from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import StoredWeights, load_saved_model

pytestmark = pytest.mark.one_of(10, "served")

TEXTS = ["a [MASK] film", "[MASK]", "the plot was unknown [MASK] 电影", "a film " * 3 + "[MASK]"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return bert.read_tokenizer(tiny_folder(tmp_path_factory.mktemp("bert") / "bert"))


@pytest.fixture(scope="module")
def model():
    # More rows than tokens: the others are never chosen.
    config = dataclasses.replace(CONFIG, vocab_size=len(TOKENS) + 3)
    return randomised(bert.BertForMaskedLM(config), seed=3)


def expected(model, tokenizer, text):
    """Probabilities of all tokens in the place of the mask, by the model alone."""
    [ids] = bert.text_inputs(tokenizer, [text], mask="[MASK]")["input_ids"].numpy().tolist()
    logits = model({"input_ids": tf.constant([ids])})[0, ids.index(tokenizer.mask_id)]
    scores = np.exp(np.float64(logits) - np.max(logits))
    return (scores / scores.sum())[: tokenizer.vocab_size]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_tokens_and_scores(model, tokenizer, jit_compile):
    found = MaskFiller(model, tokenizer, jit_compile=jit_compile).fill(TEXTS, top_k=7)
    for text, tokens, scores in zip(TEXTS, found["tokens"], found["scores"], strict=True):
        wanted = expected(model, tokenizer, text)
        best = np.argsort(-wanted, kind="stable")[:7]
        np.testing.assert_allclose(scores, wanted[best], rtol=1e-5, atol=1e-7)
        assert [token.decode() for token in tokens.numpy()] == [TOKENS[i] for i in best]


@pytest.mark.slow
def test_a_saved_model(model, tokenizer, tmp_path):
    filler = MaskFiller(StoredWeights(model, "float16"), tokenizer, max_length=8)
    filler.save(tmp_path / "model")
    call = load_saved_model(tmp_path / "model").signatures["serving_default"]
    found = call(text=tf.constant(TEXTS[:2]), top_k=tf.constant(3))
    for name, value in filler.fill(TEXTS[:2], 3).items():
        assert found[name].numpy().tolist() == value.numpy().tolist()


def test_what_is_refused(model, tokenizer):
    filler = MaskFiller(model, tokenizer, max_length=6)
    message = r"one \[MASK\] in the first 6 tokens of each"
    for text in ("a film", "[MASK] [MASK]", "a " * 9 + "[MASK]"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            filler.fill(["a [MASK]", text])
    for top_k in (0, len(TOKENS) + 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="top_k: expected a number in"):
            filler.fill(["a [MASK]"], top_k)
    with pytest.raises(ArgumentError, match="model: expected a BertForMaskedLM, got BertForPre"):
        MaskFiller(bert.BertForPreTraining(CONFIG), tokenizer)
