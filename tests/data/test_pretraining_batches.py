"""Pretraining batches have fixed shapes, BERT's input format, and differ in each epoch."""

import numpy as np
import pytest

from tf_transformer.data import PretrainingBatches, text_blocks
from tf_transformer.tokenizers import WordPieceTokenizer

pytestmark = pytest.mark.one_of(10, "runs")

WORDS = [stem + end for stem in ("low", "new", "wide", "slow") for end in ("", "er", "est")]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train([" ".join(WORDS)] * 2, vocab_size=60)


@pytest.fixture(scope="module")
def documents(tokenizer):
    rng = np.random.default_rng(0)
    texts = [
        [" ".join(rng.choice(WORDS, rng.integers(1, 7))) for _ in range(rng.integers(2, 7))]
        for _ in range(50)
    ]
    return [tokenizer.encode(document) for document in texts]


def make(documents, tokenizer, **changes):
    options = {"next_sentence": True, "lengths": (16, 24), "tokens_per_batch": 96, "seed": 3}
    return PretrainingBatches(documents, tokenizer, **{**options, **changes})


def elements(batches, *arguments, **options):
    return list(batches.dataset(*arguments, **options).as_numpy_iterator())


def test_a_row_is_two_texts_and_what_is_around_them(documents, tokenizer):
    cls, sep = tokenizer.start_id, tokenizer.end_id
    for ids, types, labels, _ in make(documents, tokenizer).epoch(0):
        assert labels.shape == (len(ids),) and set(labels) <= {0, 1}
        for row, row_types in zip(ids, types, strict=True):
            text = row[: np.count_nonzero(row)]
            first_end, second_end = np.flatnonzero(row == sep)
            assert text[0] == cls and second_end == len(text) - 1 and first_end < second_end - 1
            expected = np.zeros_like(row)
            expected[first_end + 1 : len(text)] = 1
            np.testing.assert_array_equal(row_types, expected)


def test_without_pairs_every_token_comes_once_and_the_last_batch_is_filled_up(documents, tokenizer):
    batches = make(documents, tokenizer, next_sentence=False)
    rows = [tuple(row[row > 0]) for ids, types, *_ in batches.epoch(0) for row in ids]
    blocks = [(2, *block, 3) for block in text_blocks(documents, 22)]
    assert sorted(set(rows)) == sorted(set(blocks))
    assert 0 <= len(rows) - len(blocks) < 6


@pytest.mark.parametrize("next_sentence", [True, False])
def test_shapes_are_those_of_the_buckets(documents, tokenizer, next_sentence):
    batches = make(documents, tokenizer, next_sentence=next_sentence)
    for epoch in range(3):
        shapes = [ids.shape for ids, *_ in batches.epoch(epoch)]
        assert set(shapes) == {(6, 16), (4, 24)}
        assert len(shapes) == batches.steps_per_epoch


def test_fewer_rows_than_a_batch_fill_one(documents, tokenizer):
    batches = make(documents[:2], tokenizer, tokens_per_batch=2400, next_sentence=False)
    [(ids, *_)] = batches.epoch(0)
    assert ids.shape == (100, 24) and (ids[:, 0] == tokenizer.start_id).all()


def test_the_data_set_hides_words_and_asks_for_them(documents, tokenizer):
    tokens = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
    continues = np.array([token.startswith("##") for token in tokens])
    batches = make(documents, tokenizer, continues_word=continues)
    special = [*tokenizer.special_tokens.values()]
    hidden = 0
    for (inputs, labels), (ids, types, next_labels, _) in zip(
        elements(batches, epochs=1), batches.epoch(0), strict=True
    ):
        np.testing.assert_array_equal(inputs["token_type_ids"], types)
        np.testing.assert_array_equal(inputs["attention_mask"], ids != 0)
        np.testing.assert_array_equal(labels["seq_relationship_logits"], next_labels)
        words, positions = labels["prediction_logits"], inputs["masked_lm_positions"]
        assert not np.isin(words[words > 0], special).any()
        original = np.take_along_axis(ids, positions, 1)
        np.testing.assert_array_equal(words[words > 0], original[words > 0])
        asked = np.zeros(ids.shape, bool)
        rows, slots = np.nonzero(words)
        asked[rows, positions[rows, slots]] = True
        np.testing.assert_array_equal(inputs["input_ids"][~asked], ids[~asked])
        inside = continues[ids]
        np.testing.assert_array_equal(asked[:, 1:][inside[:, 1:]], asked[:, :-1][inside[:, 1:]])
        hidden += (inputs["input_ids"] == tokenizer.mask_id).sum()
    assert hidden > 50


def test_without_pairs_the_labels_are_the_hidden_words_alone(documents, tokenizer):
    inputs, labels = elements(make(documents, tokenizer, next_sentence=False), epochs=1)[0]
    assert labels.shape == inputs["masked_lm_positions"].shape
    assert not inputs["token_type_ids"].any()


def test_each_epoch_has_its_own_masks_and_pairs_and_any_step_can_be_the_first(documents, tokenizer):
    batches = make(documents, tokenizer)
    steps = batches.steps_per_epoch
    whole = [inputs["input_ids"] for inputs, _ in elements(batches, epochs=3)]
    assert len(whole) == 3 * steps
    assert sum(map(np.array_equal, whole[:steps], whole[steps:])) == 0
    again = make(documents, tokenizer)
    for ours, theirs in zip(elements(again, 1, 2, epochs=2), whole[steps + 2 :], strict=True):
        np.testing.assert_array_equal(ours[0]["input_ids"], theirs)
    other = elements(make(documents, tokenizer, seed=4), epochs=1)
    assert not np.array_equal(other[0][0]["input_ids"], whole[0])


def test_masks_change_where_the_text_does_not(documents, tokenizer):
    batches = make(documents[:1], tokenizer, next_sentence=False, tokens_per_batch=16)
    hidden = [inputs["masked_lm_positions"].tolist() for inputs, _ in elements(batches, epochs=20)]
    assert len({str(positions) for positions in hidden}) > 5


def test_bad_input(documents, tokenizer):
    for lengths in ((), (24, 16), (3, 16)):
        with pytest.raises(ValueError, match="lengths: expected increasing ints above 3"):
            make(documents, tokenizer, lengths=lengths)
    with pytest.raises(ValueError, match="tokens_per_batch: expected an int of at least 1, got -1"):
        make(documents, tokenizer, tokens_per_batch=-1)
    with pytest.raises(ValueError, match="documents: expected at least one, got none"):
        make([], tokenizer)
    with pytest.raises(ValueError, match="documents: expected at least two, and two sentences"):
        next(make(documents[:1], tokenizer).epoch(0))
