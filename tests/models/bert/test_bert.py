"""The backbone and its heads: against an outside peer, float64, and themselves."""

import keras
import layer_harness as harness
import numpy as np
import pytest
import reference_bert as ref
import tensorflow as tf
from bert_vectors import CLASSES, GOLDEN
from loading import close

from tf_transformer import bert

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
OTHER_NAMES = {"sop_logits": "seq_relationship_logits"}
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


def golden(name):
    with np.load(GOLDEN / name / "golden.npz") as archive:
        arrays = dict(archive)
    inputs = {key: tf.constant(arrays.pop(key)) for key in INPUTS}
    return inputs, {OTHER_NAMES.get(key, key): array for key, array in arrays.items()}


def batch(batch_size=2, length=5):
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
    model = cls(config, **options)
    model.build()
    rng = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def twin(model, **options):
    """The same model with the same weights and other options."""
    other = type(model)(model.config, **options)
    other.build()
    other.set_weights(model.get_weights())
    return other


def tokens_only(states, mask):
    return np.asarray(states)[np.asarray(mask) == 1]


@pytest.mark.parametrize("name", CLASSES)
def test_equals_the_outside_peer(name):
    inputs, expected = golden(name)
    model = CLASSES[name].from_pretrained(GOLDEN / name)
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


@pytest.mark.parametrize("cls", [bert.Bert, *HEADS, bert.SentenceEncoder], ids=lambda c: c.__name__)
class TestHarness:
    def case(self, cls):
        calls = tuple({"inputs": batch(*shape)} for shape in ((2, 5), (3, 7), (2, 5)))
        return harness.Case(lambda **kwargs: cls(CONFIG, **kwargs), calls)

    def test_eager_is_xla(self, cls):
        harness.check_compiled(self.case(cls))

    def test_eager_is_a_saved_model(self, cls, tmp_path):
        harness.check_saved_model(self.case(cls), tmp_path)

    def test_config(self, cls):
        harness.check_config(self.case(cls))

    def test_gradients(self, cls):
        case = self.case(cls)
        if cls is not bert.SentenceEncoder:  # whose mean leaves nothing out, but has no pooler
            harness.check_gradients(case)

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


class TestUnpad:
    @pytest.mark.parametrize(
        "cls", [bert.Bert, *HEADS, bert.SentenceEncoder], ids=lambda c: c.__name__
    )
    def test_gives_the_same_of_tokens(self, cls):
        model, inputs = built(cls), batch(3, 7)
        keep = inputs["attention_mask"]
        keep[:, 0] = 1
        outputs = (tf.nest.flatten(m(inputs)) for m in (model, twin(model, unpad=True)))
        for one, other in zip(*outputs, strict=True):
            if one.shape[:2] == keep.shape:
                one, other = tokens_only(one, keep), tokens_only(other, keep)
            close(one, other)

    def test_says_0_of_padding(self):
        model, inputs = twin(built(), unpad=True), batch()
        outputs = model(inputs, return_hidden_states=True)
        for states in outputs["hidden_states"]:
            assert (np.asarray(states)[inputs["attention_mask"] == 0] == 0).all()

    @pytest.mark.parametrize("size", [0, 2])
    def test_a_batch_without_a_token(self, size):
        inputs = {key: np.zeros((size, 5), np.int32) for key in batch()}
        outputs = twin(built(), unpad=True)(inputs)
        assert outputs["sequence_output"].shape == (size, 5, 14)
        assert (np.asarray(outputs["sequence_output"]) == 0).all()
        assert np.isfinite(outputs["pooled_output"]).all()

    def test_attention_is_that_of_tokens(self):
        model, inputs = built(), batch()
        keep = inputs["attention_mask"]
        one, other = (
            m(inputs, return_attentions=True)["attentions"][-1]
            for m in (model, twin(model, unpad=True))
        )
        one, other = (tokens_only(np.moveaxis(x, 1, 2), keep) for x in (one, other))
        close(one, other)

    def test_gradients_are_the_same(self):
        model = built(bert.BertForSequenceClassification)
        inputs, upstream = batch(3, 7), np.random.default_rng(1).standard_normal((3, 5))
        inputs["attention_mask"][:, 0] = 1
        gradients = []
        for one in (model, twin(model, unpad=True)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(one(inputs) * upstream)
            values = [weight.value for weight in one.trainable_weights]
            gradients.append([tf.convert_to_tensor(g) for g in tape.gradient(loss, values)])
        largest = max(np.abs(g).max() for g in gradients[0])
        for one, other in zip(
            *gradients, strict=True
        ):  # that of the keys' bias is 0 but for rounding
            np.testing.assert_allclose(one, other, atol=1e-5 * largest)

    def test_keras_does_not_compile_it(self):
        assert built().supports_jit and not built(unpad=True).supports_jit


class TestSentenceEncoder:
    def states(self, model, inputs):
        return np.asarray(model.bert(inputs)["sequence_output"], np.float64)

    def test_mean(self):
        model, inputs = built(bert.SentenceEncoder, normalize=False), batch()
        states, keep = self.states(model, inputs), inputs["attention_mask"][..., None]
        close(model(inputs), (states * keep).sum(1) / keep.sum(1))

    def test_first_token(self):
        model, inputs = built(bert.SentenceEncoder, pooling="cls", normalize=False), batch()
        close(model(inputs), self.states(model, inputs)[:, 0])

    def test_length_1(self):
        model, inputs = built(bert.SentenceEncoder), batch()
        plain = np.asarray(twin(model, normalize=False)(inputs), np.float64)
        close(model(inputs), plain / np.linalg.norm(plain, axis=1, keepdims=True))

    def test_refuses_another_pooling(self):
        with pytest.raises(ValueError, match="one of mean, cls, pooler, got .max."):
            bert.SentenceEncoder(CONFIG, pooling="max")


class TestBadInput:
    IDS = batch()["input_ids"]

    @pytest.mark.parametrize(
        "inputs, message",
        [
            (IDS, "inputs: expected a dict of input_ids"),
            ({"ids": IDS}, "inputs: expected a dict of input_ids"),
            ({"input_ids": IDS, "mask": IDS}, "got .'input_ids', 'mask'."),
            ({"input_ids": IDS * 1.0}, "input_ids: expected integers, got float"),
            ({"input_ids": IDS, "attention_mask": IDS * 1.0}, "has 1 = may attend; cast it"),
            ({"input_ids": IDS[0]}, "input_ids: expected a shape that goes with"),
            ({"input_ids": IDS, "token_type_ids": IDS[:, :4]}, "token_type_ids: expected a shape"),
            ({"input_ids": IDS, "attention_mask": IDS[:1, :4]}, "attention_mask: expected a shape"),
            ({"input_ids": np.full((2, 14), 1)}, "at most 13 tokens .*got length 14"),
            ({"input_ids": np.where(IDS[0, 0] == IDS, 29, IDS)}, r"ids in \[0, 29\).*Got 29"),
            ({"input_ids": np.where(IDS[0, 0] == IDS, -1, IDS)}, r"ids in \[0, 29\).*Got -1"),
            (
                {"input_ids": IDS, "token_type_ids": 0 * IDS + 3},
                r"token_type_ids: .*\[0, 3\).*Got 3",
            ),
        ],
    )
    def test_raises(self, inputs, message):
        with pytest.raises(ValueError, match=message):
            built()(inputs)

    @pytest.mark.parametrize("bad", [29, -1, 2**31 - 1])
    def test_raises_in_a_graph(self, bad):
        ids = self.IDS.copy()
        ids[1, 2] = bad
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected ids in \[0, 29\)"):
            tf.function(built())({"input_ids": tf.constant(ids)})

    def test_an_unknown_length_too_large_raises_in_a_graph(self):
        spec = {"input_ids": tf.TensorSpec((None, None), tf.int32)}
        function = tf.function(built(), input_signature=[spec])
        assert function({"input_ids": tf.ones((2, 13), tf.int32)})["pooled_output"].shape == (2, 14)
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected at most 13 tokens"):
            function({"input_ids": tf.ones((2, 14), tf.int32)})

    @pytest.mark.parametrize("bad", [29, -1])
    @pytest.mark.parametrize("name", ["input_ids", "token_type_ids"])
    def test_xla_says_nan_and_never_a_row_of_zeros(self, bad, name):
        inputs = batch()
        inputs[name][1, 2] = bad
        outputs = tf.function(built(), jit_compile=True)(inputs)
        assert np.isnan(outputs["sequence_output"][1]).all()
        assert np.isfinite(outputs["sequence_output"][0]).all()

    def test_a_head_without_what_it_needs(self):
        plain = bert.BertConfig.of({**CONFIG.to_dict(), "pooler_activation": None, "labels": ()})
        with pytest.raises(ValueError, match="pooler_activation: expected one"):
            bert.BertForNextSentencePrediction(plain)
        with pytest.raises(ValueError, match="labels: expected the names of the classes"):
            bert.BertForTokenClassification(plain)


def test_trains_under_fit():
    model = built(bert.BertForSequenceClassification)
    inputs, labels = batch(6, 7), np.arange(6) % 5
    model.compile(
        keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    history = model.fit(inputs, labels, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]


def test_parameters_of_bert_base():
    model = bert.Bert(bert.BertConfig())
    model.build()
    sizes = {name: int(np.prod(v.shape)) for name, v in model.variables_by_name().items()}

    def total(*parts):
        return sum(size for name, size in sizes.items() if any(part in name for part in parts))

    tables = total("word_embeddings", "position_embeddings", "token_type_embeddings")
    assert tables == (30522 + 512 + 2) * 768 == 23_835_648
    assert total("bert/embeddings") == 23_837_184
    assert total("/self/", "attention/output/dense") == 28_348_416  # with the biases
    assert total("/self/query/kernel") * 4 == 28_311_552  # without
    assert total("intermediate/dense/kernel", "/output/dense/kernel") - 12 * 768**2 == 56_623_104
    assert total("LayerNorm") == 25 * 2 * 768 == 38_400
    assert sum(sizes.values()) == 109_482_240


@pytest.mark.parametrize(
    "width, layers, heads, expected",
    [(768, 12, 12, 11_683_584), (1024, 24, 16, 17_683_968), (2048, 24, 16, 58_724_864)],
    ids=["base", "large", "xlarge"],
)
def test_parameters_of_albert(width, layers, heads, expected):
    # Published: 12M, 18M, 60M (Lan et al. 2020, table 1).
    config = bert.BertConfig(
        30000,
        width,
        layers,
        heads,
        4 * width,
        "gelu_new",
        0,
        0,
        embedding_size=128,
        num_hidden_groups=1,
    )
    model = bert.Bert(config)
    model.build()
    assert model.count_params() == expected
