"""The backbone and its heads against Hugging Face's transformers, float64, and themselves."""

import keras
import layer_harness as harness
import numpy as np
import pytest
import reference_bert as ref
import tensorflow as tf
from bert_vectors import CLASSES, GOLDEN, RELATIVES
from loading import close
from random_bert import CONFIG, HEADS, batch, built, tokens_only

from tf_transformer import bert

pytestmark = pytest.mark.one_of(10, "published")

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
OTHER_NAMES = {"sop_logits": "seq_relationship_logits"}


def golden(name):
    with np.load(GOLDEN / name / "golden.npz") as archive:
        arrays = dict(archive)
    inputs = {key: tf.constant(arrays.pop(key)) for key in INPUTS if key in arrays}
    return inputs, {OTHER_NAMES.get(key, key): array for key, array in arrays.items()}


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", [*CLASSES, *RELATIVES])
def test_equals_the_outside_peer(name):
    inputs, expected = golden(name)
    model = {**CLASSES, **RELATIVES}[name].from_pretrained(GOLDEN / name)
    outputs = model(inputs)
    if not isinstance(outputs, dict):
        outputs = {"logits": outputs}
    for key in outputs.keys() & expected.keys():
        close(outputs[key], expected[key])
    named = {key for key in outputs if key.endswith("logits")}
    assert named == {key for key in expected if key.endswith("logits")}
    backbone = model if isinstance(model, bert.Bert) else model.bert
    states = backbone(inputs, return_hidden_states=True, return_attentions=True)
    assert len(states["hidden_states"]) == 4 and len(states["attentions"]) == 3
    close(np.stack(states["hidden_states"]), expected["hidden_states"])
    close(np.stack(states["attentions"]), expected["attentions"])
    if "pooler_output" in expected:
        close(states["pooled_output"], expected["pooler_output"])
        close(states["sequence_output"], expected["last_hidden_state"])


@pytest.mark.parametrize("name", ["BertModel", "AlbertModel"])
def test_a_mask_turned_round_fails(name):
    inputs, expected = golden(name)
    inputs["attention_mask"] = 1 - inputs["attention_mask"]
    with pytest.raises(AssertionError):
        close(
            bert.Bert.from_pretrained(GOLDEN / name)(inputs)["pooled_output"],
            expected["pooler_output"],
        )


@pytest.mark.parametrize(
    "changes", [{}, {"embedding_size": 5}, {"num_hidden_groups": 2}, {"hidden_act": "gelu_new"}]
)
def test_equals_the_reference(changes):
    config = bert.BertConfig.of({**CONFIG.to_dict(), **changes})
    model, inputs = built(config=config), batch()
    params = {k: np.asarray(v, np.float64) for k, v in model.variables_by_name().items()}
    act = ref.gelu_tanh if "hidden_act" in changes else ref.gelu
    expected = ref.bert(*inputs.values(), params, 7, 3, act, group=config.group_of)
    outputs = model(inputs, return_hidden_states=True, return_attentions=True)
    for one, other in zip(outputs["hidden_states"], expected["hidden_states"], strict=True):
        close(one, other)
    for one, other in zip(outputs["attentions"], expected["attentions"], strict=True):
        close(one, other)
    close(outputs["pooled_output"], expected["pooled_output"])


def test_masked_lm_equals_the_reference():
    model, inputs = built(bert.BertForMaskedLM), batch()
    params = {k: np.asarray(v, np.float64) for k, v in model.variables_by_name().items()}
    states = ref.bert(*inputs.values(), params, 7, 3)["hidden_states"][-1]
    expected = ref.masked_lm(states, params)
    close(model(inputs), expected)
    positions = np.array([[3, 0, 3], [1, 4, 2]], np.int32)
    some = model({**inputs, "masked_lm_positions": positions})
    close(some, np.take_along_axis(expected, positions[..., None], 1))


@pytest.mark.one_of(10)
@pytest.mark.parametrize("cls", [bert.Bert, *HEADS, bert.SentenceEncoder], ids=lambda c: c.__name__)
class TestHarness:
    def case(self, cls):
        calls = tuple({"inputs": batch(*shape)} for shape in ((2, 5), (3, 7), (2, 5)))
        return harness.Case(lambda **kwargs: cls(CONFIG, **kwargs), calls)

    @pytest.mark.one_of(10)
    def test_eager_is_xla(self, cls):
        harness.check_compiled(self.case(cls))

    @pytest.mark.one_of(10)
    def test_eager_is_a_saved_model(self, cls, tmp_path):
        harness.check_saved_model(self.case(cls), tmp_path)

    def test_config(self, cls):
        harness.check_config(self.case(cls))

    def test_gradients(self, cls):
        case = self.case(cls)
        if cls is not bert.SentenceEncoder:  # it averages every token, but has no pooler
            harness.check_gradients(case)

    @pytest.mark.one_of(10)
    @pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
    def test_policy(self, cls, policy):
        case = self.case(cls)
        layer = case.make(dtype=policy)
        case.apply(layer, case.tensors())
        layer.set_weights(case.layer.get_weights())
        outputs = case.apply(layer, case.tensors())
        for one, other in zip(outputs, case.apply(case.layer, case.tensors()), strict=True):
            scale = np.abs(other).max()
            np.testing.assert_allclose(tf.cast(one, tf.float32), other, atol=0.05 * scale)

    def test_keras_file(self, cls, tmp_path):
        model = built(cls)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        for one, other in zip(
            tf.nest.flatten(loaded(batch())), tf.nest.flatten(model(batch())), strict=True
        ):
            np.testing.assert_array_equal(one, other)


class TestLaws:
    def test_padding_is_irrelevant(self):
        model, inputs = built(), batch(2, 5)
        longer = {key: np.pad(array, ((0, 0), (0, 3))) for key, array in inputs.items()}
        longer["input_ids"][:, 5:] = 17
        short, long = (model(one)["sequence_output"] for one in (inputs, longer))
        close(
            tokens_only(long[:, :5], inputs["attention_mask"]),
            tokens_only(short, inputs["attention_mask"]),
        )

    def test_blocked_tokens_change_nothing(self):
        model, inputs = built(), batch()
        changed = {
            **inputs,
            "input_ids": np.where(inputs["attention_mask"] == 1, inputs["input_ids"], 9),
        }
        keep = inputs["attention_mask"]
        one, other = (tokens_only(model(x)["sequence_output"], keep) for x in (inputs, changed))
        np.testing.assert_array_equal(one, other)

    def test_a_batch_is_its_rows(self):
        model, inputs = built(), batch(3, 7)
        rows = [model({k: v[n : n + 1] for k, v in inputs.items()}) for n in range(3)]
        close(
            model(inputs)["sequence_output"], np.concatenate([r["sequence_output"] for r in rows])
        )

    def test_missing_inputs_mean_zeros_and_ones(self):
        model, inputs = built(), batch()
        ids = inputs["input_ids"]
        full = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
        np.testing.assert_array_equal(
            model({"input_ids": ids})["sequence_output"], model(full)["sequence_output"]
        )

    @pytest.mark.parametrize("spread", [lambda m: m[:, None, :], lambda m: m[:, None, None, :]])
    def test_masks_of_higher_rank(self, spread):
        model, inputs = built(), batch()
        keep = np.broadcast_to(
            spread(inputs["attention_mask"]), spread(inputs["attention_mask"]).shape
        )
        same = model({**inputs, "attention_mask": keep.copy()})
        close(same["sequence_output"], model(inputs)["sequence_output"], 1e-6)
        per_query = np.tril(np.ones((2, 5, 5), np.int32))
        causal = model({**inputs, "attention_mask": per_query}, return_attentions=True)
        assert (np.triu(causal["attentions"][0], 1) == 0).all()

    def test_bool_masks(self):
        model, inputs = built(), batch()
        same = model({**inputs, "attention_mask": inputs["attention_mask"] == 1})
        np.testing.assert_array_equal(same["pooled_output"], model(inputs)["pooled_output"])


@pytest.mark.slow
def test_trains_under_fit():
    model = built(bert.BertForSequenceClassification)
    inputs, labels = batch(6, 7), np.arange(6) % 5
    model.compile(
        keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    history = model.fit(inputs, labels, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
