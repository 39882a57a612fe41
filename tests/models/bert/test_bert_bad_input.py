"""Errors of the backbone for invalid input."""

import numpy as np
import pytest
import tensorflow as tf
from random_bert import CONFIG, batch, built

from tf_transformer import bert

pytestmark = pytest.mark.one_of(10, "bert")

IDS = batch()["input_ids"]


@pytest.mark.parametrize(
    "inputs, message",
    [
        (IDS, "inputs: expected a dict of input_ids"),
        ({"ids": IDS}, "inputs: expected a dict of input_ids"),
        ({"input_ids": IDS, "mask": IDS}, "got .'input_ids', 'mask'."),
        ({"input_ids": IDS + 0.5}, "input_ids: expected whole numbers below .*got other float64"),
        (
            {"input_ids": IDS.astype("float16")},
            "input_ids: expected integers, got float16.*keras.Input",
        ),
        ({"input_ids": IDS[:, :0]}, "input_ids: expected at least one token"),
        ({"input_ids": IDS, "attention_mask": IDS * 1.0}, "has 1 = may attend; cast it"),
        ({"input_ids": IDS, "attention_mask": IDS * 0 + 2}, "attention_mask: expected 1 for what"),
        ({"input_ids": IDS, "attention_mask": IDS * 0 - 10000}, "pass tf.cast.mask == 0, tf.int32"),
        (
            {"input_ids": IDS[0]},
            r"input_ids: expected integers \(batch, length\), got shape \(5,\)",
        ),
        ({"input_ids": IDS, "token_type_ids": IDS[:, :4]}, "token_type_ids: expected a shape"),
        ({"input_ids": IDS, "attention_mask": IDS[:1, :4]}, "attention_mask: expected a shape"),
        ({"input_ids": np.full((2, 14), 1)}, "at most 13 tokens .*got length 14"),
        ({"input_ids": np.where(IDS[0, 0] == IDS, 29, IDS)}, r"ids in \[0, 29\).*got 29"),
        ({"input_ids": np.where(IDS[0, 0] == IDS, -1, IDS)}, r"ids in \[0, 29\).*got -1"),
        (
            {"input_ids": IDS, "token_type_ids": 0 * IDS + 3},
            r"token_type_ids: .*\[0, 3\).*got 3",
        ),
    ],
)
def test_raises(inputs, message):
    with pytest.raises(ValueError, match=message):
        built()(inputs)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", ["input_ids", "token_type_ids"])
def test_a_number_of_64_bits_does_not_become_one_in_range(name):
    inputs = {key: array.astype(np.int64) for key, array in batch().items()}
    inputs[name][1, 2] = 2**32 + 1
    with pytest.raises(ValueError, match=f"{name}: expected ids .* got 4294967297"):
        built()(inputs)
    outputs = tf.function(built(), jit_compile=True)(inputs)
    assert np.isnan(outputs["sequence_output"][1]).all()


def test_inputs_by_name_as_in_transformers():
    model, inputs = built(), batch()
    expected = model(inputs)["pooled_output"]
    rest = {name: array for name, array in inputs.items() if name != "input_ids"}
    for outputs in (model(**inputs), model(inputs["input_ids"], **rest)):
        np.testing.assert_array_equal(outputs["pooled_output"], expected)
    with pytest.raises(TypeError, match="inputs: expected a dict, or .'input_ids'. by name"):
        model(inputs, input_ids=inputs["input_ids"])


def test_heads_refuse_what_is_no_dict():
    with pytest.raises(ValueError, match="inputs: expected a dict of input_ids"):
        built(bert.BertForMaskedLM)(batch()["input_ids"])


def test_the_mean_wants_a_mask_of_tokens():
    inputs = {**batch(), "attention_mask": np.ones((2, 5, 5), np.int32)}
    with pytest.raises(ValueError, match="attention_mask: expected .batch, length.*2, 5, 5"):
        built(bert.SentenceEncoder)(inputs)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("bad", [29, -1, 2**31 - 1])
def test_raises_in_a_graph(bad):
    ids = IDS.copy()
    ids[1, 2] = bad
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected ids in \[0, 29\)"):
        tf.function(built())({"input_ids": tf.constant(ids)})


def test_an_unknown_length_too_large_raises_in_a_graph():
    spec = {"input_ids": tf.TensorSpec((None, None), tf.int32)}
    function = tf.function(built(), input_signature=[spec])
    assert function({"input_ids": tf.ones((2, 13), tf.int32)})["pooled_output"].shape == (2, 14)
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected at most 13 tokens"):
        function({"input_ids": tf.ones((2, 14), tf.int32)})


@pytest.mark.slow
def test_an_unknown_length_too_large_is_nan_in_xla():
    spec = {name: tf.TensorSpec((None, None), tf.int32) for name in ("input_ids", "token_type_ids")}
    function = tf.function(built(), input_signature=[spec], jit_compile=True)
    for length, expected in ((13, False), (14, True), (40, True)):
        ones = tf.ones((2, length), tf.int32)
        outputs = function({"input_ids": ones, "token_type_ids": ones})["sequence_output"]
        assert (np.isnan(outputs) == expected).all()


@pytest.mark.one_of(10)
@pytest.mark.parametrize("bad", [29, -1])
@pytest.mark.parametrize("name", ["input_ids", "token_type_ids"])
def test_xla_says_nan_and_never_a_row_of_zeros(bad, name):
    inputs = batch()
    inputs[name][1, 2] = bad
    outputs = tf.function(built(), jit_compile=True)(inputs)
    assert np.isnan(outputs["sequence_output"][1]).all()
    assert np.isfinite(outputs["sequence_output"][0]).all()


def test_a_head_without_what_it_needs():
    plain = bert.BertConfig.of({**CONFIG.to_dict(), "pooler_activation": None, "labels": ()})
    with pytest.raises(ValueError, match="pooler_activation: expected an activation"):
        bert.BertForNextSentencePrediction(plain)
    with pytest.raises(ValueError, match="labels: expected the names of the classes"):
        bert.BertForTokenClassification(plain)


def test_a_masked_position_outside():
    model = built(bert.BertForMaskedLM)
    inputs = {**batch(), "masked_lm_positions": np.array([[0, 5], [4, 1]])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="5 is not in"):
        model(inputs)
    logits = tf.function(model, jit_compile=True)(inputs)
    assert np.isnan(logits).any(axis=-1).tolist() == [[False, True], [False, False]]
