"""The sequence-to-sequence mask, and generation with it."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import CONFIG, randomised

from tf_transformer import additive_mask, bert, create_sequence_to_sequence_mask, greedy_decode

pytestmark = pytest.mark.one_of(3, "core")

SEP = 3


def test_the_mask_by_its_definition():
    types = np.array([[0, 0, 0, 1, 1], [0, 1, 1, 1, 0]])
    mask = create_sequence_to_sequence_mask(types)
    assert mask.dtype == tf.float32 and mask.shape == (2, 1, 5, 5)
    for b in range(2):
        for query in range(5):
            for key in range(5):
                own, other = types[b, : query + 1].sum(), types[b, : key + 1].sum()
                assert mask[b, 0, query, key] == float(other > own), (b, query, key)


def test_additive_mask():
    mask = additive_mask([[1, 0], [1, 1]])
    assert mask.numpy().tolist() == [[[[0, -10000]]], [[[0, 0]]]]
    assert additive_mask(np.ones((2, 3, 5), bool)).shape == (2, 1, 3, 5)
    for wrong in (np.ones((2, 3), np.float32), np.ones(3, np.int32), np.ones((2, 1, 3, 5), int)):
        with pytest.raises(ValueError, match="attention_mask: expected integers"):
            additive_mask(wrong)


@pytest.fixture(scope="module")
def model():
    return randomised(bert.UniLM(CONFIG))


def test_the_source_does_not_see_the_output_and_no_token_what_follows(model):
    ids = np.array([[2, 7, 8, SEP, 9, 10, 11]])
    types = np.array([[0, 0, 0, 0, 1, 1, 1]])
    before = model({"input_ids": ids, "token_type_ids": types})
    changed = ids.copy()
    changed[0, 5] = 14
    after = model({"input_ids": changed, "token_type_ids": types})
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.abs(before[:, 5:] - after[:, 5:]).min() > 0


def test_step_by_step_is_the_whole_at_once(model):
    """Two texts of different lengths, so positions differ from those in a batch of one."""
    sources = [[2, 7, 8, 5, SEP], [2, 6, SEP]]
    written = np.array([[9, 12, 10], [14, 6, 13]])
    padded = np.array([row + [0] * (5 - len(row)) for row in sources])
    state = model.start(tf.constant(padded), 4)
    step = tf.function(model.step)
    tokens, steps = np.full(2, SEP), []
    for t in range(4):
        logits, state = step(tf.constant(tokens, tf.int32), state)
        steps.append(logits)
        tokens = written[:, min(t, 2)]
    for b, source in enumerate(sources):
        ids = np.array([[*source, *written[b]]])
        types = np.array([[0] * len(source) + [1] * 3])
        whole = model({"input_ids": ids, "token_type_ids": types})[0, len(source) - 1 :]
        np.testing.assert_allclose([one[b] for one in steps], whole, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_decodes_in_a_graph(model):
    def write(ids):
        state = model.start(ids, 5)
        return greedy_decode(
            model.step, state, tf.shape(ids)[0], start_id=SEP, end_id=SEP, max_length=5
        )

    ids = tf.constant([[2, 7, 8, SEP], [2, 6, SEP, 0]])
    np.testing.assert_array_equal(tf.function(write)(ids), write(ids))


def test_refuses_more_than_the_positions(model):
    with pytest.raises(ValueError, match="max_length: expected at most 6.*got 7"):
        model.start(tf.ones((1, 5), tf.int32), 7)


class TestGivenAMask:
    """`text_inputs` always returns a padding mask: both padding and the future stay hidden."""

    IDS = np.array([[2, 7, 8, SEP, 9, 10, 11]])
    TYPES = np.array([[0, 0, 0, 0, 1, 1, 1]])

    def logits(self, model, ids, types, mask):
        return model({"input_ids": ids, "token_type_ids": types, "attention_mask": mask})

    def test_no_token_sees_what_follows(self, model):
        changed = self.IDS.copy()
        changed[0, 6] = 14
        one, other = (
            self.logits(model, ids, self.TYPES, np.ones_like(ids)) for ids in (self.IDS, changed)
        )
        np.testing.assert_array_equal(one[:, :6], other[:, :6])

    def test_padding_is_irrelevant(self, model):
        ids, types = (np.pad(array, ((0, 0), (0, 3))) for array in (self.IDS, self.TYPES))
        mask = np.pad(np.ones_like(self.IDS), ((0, 0), (0, 3)))
        expected = model({"input_ids": self.IDS, "token_type_ids": self.TYPES})
        padded = self.logits(model, ids, types, mask)[:, :7]
        np.testing.assert_allclose(padded, expected, rtol=1e-5, atol=1e-5)

    def test_one_for_each_pair_is_taken_as_it_is(self, model):
        mask = np.ones((1, 7, 7), np.int32)
        plain = bert.BertForMaskedLM(model.config)
        plain.build()
        plain.set_weights(model.get_weights())
        np.testing.assert_array_equal(
            self.logits(model, self.IDS, self.TYPES, mask),
            self.logits(plain, self.IDS, self.TYPES, mask),
        )
