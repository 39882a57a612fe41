"""Texts are continued by every decoding, and begin as they were given."""

import copy

import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import BPETokenizer, LanguageModel, continue_texts, with_vocab_size

pytestmark = pytest.mark.one_of(10, "parts")

TEXTS = ["low new", "", "newest 新"]


@pytest.fixture(scope="module")
def model_and_tokenizer():
    tokenizer = BPETokenizer.train(["low lower lowest", "new newer newest"], vocab_size=270)
    model = LanguageModel(1, 8, 2, 11, tokenizer.vocab_size, max_position=16)
    model.build()
    return randomize(model, 2), tokenizer


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "how", [{}, {"beam_size": 3}, {"sampling": {"seed": 5, "temperature": 2.0}}], ids=str
)
def test_texts_begin_as_given_and_equal_each_alone(model_and_tokenizer, how):
    found = continue_texts(*model_and_tokenizer, TEXTS, max_length=13, **how)
    assert all(text.startswith(given) for text, given in zip(found, TEXTS, strict=True))
    assert found != TEXTS
    if "sampling" not in how:  # whose numbers depend on the row
        for text, given in zip(found, TEXTS, strict=True):
            assert continue_texts(*model_and_tokenizer, [given], max_length=13, **how) == [text]


def test_the_strategies_and_rules_differ(model_and_tokenizer):
    ways = [{}, {"sampling": {"seed": 1}}, {"no_repeat_ngram": 1}]
    assert len({continue_texts(*model_and_tokenizer, ["low"], **how)[0] for how in ways}) == 3


def test_a_text_as_long_as_the_limit_stays_as_it_is(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    [ids] = tokenizer.encode(["low new"])
    assert continue_texts(model, tokenizer, ["low new"], max_length=len(ids)) == ["low new"]


@pytest.mark.one_of(6)
@pytest.mark.parametrize("how", [{}, {"beam_size": 3}, {"sampling": {"seed": 5}}], ids=str)
def test_an_id_without_a_token_is_never_chosen(model_and_tokenizer, how):
    model, tokenizer = model_and_tokenizer
    wide = with_vocab_size(model, tokenizer.vocab_size + 5)
    table = wide.decoder.embedding.embedding.embeddings
    table.assign(tf.concat([table[:-5], 9 * table[:5]], 0))  # they would be the likeliest often
    expected = continue_texts(model, tokenizer, TEXTS, **how)
    assert continue_texts(wide, tokenizer, TEXTS, **how) == expected


def test_more_tokens_than_rows_are_refused(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    tokenizer = copy.copy(tokenizer)
    size = tokenizer.vocab_size
    tokenizer.add_tokens(["[E1]"])
    with pytest.raises(ValueError, match=f"tokenizer: expected at most {size} .* got {size + 1}"):
        continue_texts(model, tokenizer, ["low"])
    larger = with_vocab_size(model, size + 1)
    assert continue_texts(larger, tokenizer, ["low[E1]"])[0].startswith("low[E1]")


def test_bad_input(model_and_tokenizer):
    with pytest.raises(ValueError, match="texts: expected at least one"):
        continue_texts(*model_and_tokenizer, [])
    with pytest.raises(ValueError, match="beam_size, sampling: expected one of them"):
        continue_texts(*model_and_tokenizer, ["low"], beam_size=2, sampling={})
    with pytest.raises(ValueError, match="text: expected a beginning of at most 16 tokens"):
        continue_texts(*model_and_tokenizer, ["low " * 20])
    with pytest.raises(ValueError, match="max_length: expected at most 16 .max_position."):
        continue_texts(*model_and_tokenizer, ["low"], max_length=17)
    other = LanguageModel(1, 8, 2, 11, 270, max_position=16, pad_id=3)
    with pytest.raises(ValueError, match="model: expected one whose padding is the id 0, got 3"):
        continue_texts(other, model_and_tokenizer[1], ["low"])
    for length in (0, -3):
        with pytest.raises(ValueError, match="max_length: expected at least 1"):
            continue_texts(*model_and_tokenizer, [""], max_length=length)
