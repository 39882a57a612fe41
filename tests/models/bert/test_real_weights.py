"""Published models: MiniLM against torch, the Chinese SimBERT against float64 NumPy."""

from pathlib import Path

import keras
import numpy as np
import pytest
import real_weights
import reference_bert as ref
import tensorflow as tf
from loading import close

from tf_transformer import bert, greedy_decode
from tf_transformer.export import TextEncoder, nearest

pytestmark = [pytest.mark.real, pytest.mark.one_of(3, "core")]
GOLDEN = Path(__file__).resolve().parents[2] / "vectors" / "bert" / "minilm.npz"


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def simbert(tmp_path_factory):
    return real_weights.simbert(tmp_path_factory.mktemp("simbert"))


def inputs_of(golden):
    names = ("input_ids", "token_type_ids", "attention_mask")
    return {name: tf.constant(golden[name]) for name in names}


class TestMiniLM:
    @pytest.mark.slow
    def test_reads_texts_as_the_peer(self, golden):
        tokenizer = bert.read_tokenizer(real_weights.minilm())
        inputs = bert.text_inputs(tokenizer, golden["sentences"].tolist())
        for name, tensor in inputs.items():
            np.testing.assert_array_equal(tensor, golden[name])

    def test_every_layer(self, golden):
        model = bert.Bert.from_pretrained(real_weights.minilm())
        outputs = model(inputs_of(golden), return_hidden_states=True, return_attentions=True)
        states = np.stack(outputs["hidden_states"])[..., ::24]
        tokens = golden["attention_mask"] == 1
        expected = golden["hidden_states"]
        np.testing.assert_allclose(states[:, tokens], expected[:, tokens], atol=1e-5)
        # At padding, which nothing reads, a few of 16,464 numbers have larger rounding errors.
        np.testing.assert_allclose(states, expected, atol=5e-5)
        np.testing.assert_allclose(
            np.stack(outputs["attentions"])[:, 3], golden["attentions"], atol=1e-5
        )
        np.testing.assert_allclose(outputs["pooled_output"], golden["pooled_output"], atol=1e-5)

    @pytest.mark.parametrize("unpad", [False, True])
    def test_sentence_vectors(self, golden, unpad):
        model = bert.SentenceEncoder.from_pretrained(real_weights.minilm(), unpad=unpad)
        assert (model.pooling, model.normalize) == ("mean", True)
        vectors = np.asarray(model(inputs_of(golden)), np.float64)
        np.testing.assert_allclose(vectors, golden["vectors"], atol=1e-5)
        similar = golden["vectors"] @ golden["vectors"].T
        np.testing.assert_allclose(vectors @ vectors.T, similar, atol=1e-5)

    def test_without_the_mask_the_vectors_are_others(self, golden):
        model = bert.SentenceEncoder.from_pretrained(real_weights.minilm())
        inputs = inputs_of(golden)
        del inputs["attention_mask"]
        assert np.abs(model(inputs) - golden["vectors"]).max() > 0.05

    @pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
    def test_bfloat16(self, golden, policy):
        model = bert.SentenceEncoder.from_pretrained(
            real_weights.minilm(), dtype=keras.DTypePolicy(policy)
        )
        vectors = np.asarray(model(inputs_of(golden)), np.float64)
        np.testing.assert_allclose(vectors, golden["vectors"], atol=2e-2)

    @pytest.mark.slow
    def test_texts_to_vectors_to_the_nearest(self):
        encoder = TextEncoder.from_pretrained(real_weights.minilm())
        index = encoder.encode(["The cat sleeps.", "Someone has lunch.", "Markets fell."]).numpy()
        _, rows = nearest(index, encoder.encode(["A man is eating."]).numpy(), 3)
        assert rows[0, 0] == 1

    def test_saved_and_read_again(self, golden, tmp_path):
        model = bert.Bert.from_pretrained(real_weights.minilm())
        model.save_pretrained(tmp_path / "saved")
        again = bert.Bert.from_pretrained(tmp_path / "saved")
        for one, other in zip(again.weights, model.weights, strict=True):
            np.testing.assert_array_equal(one, other)


class TestSimBERT:
    @pytest.mark.slow
    def test_equals_the_reference(self, simbert):
        reader = tf.train.load_checkpoint(str(simbert / "bert_model.ckpt"))
        params = {
            name: reader.get_tensor(name).astype(np.float64)
            for name in reader.get_variable_to_shape_map()
        }
        texts = ["我爱中国。", "北京的天气怎么样", "微信和支付宝哪个好?"]
        inputs = bert.text_inputs(bert.read_tokenizer(simbert), texts)
        arrays = [np.asarray(array) for array in inputs.values()]
        assert (arrays[2] == 0).any()
        expected = ref.bert(*arrays, params, heads=12, layers=4, pooler=lambda x: x)
        model = bert.Bert.from_pretrained(simbert, pooler_activation="linear")
        outputs = model(inputs, return_hidden_states=True)
        for one, other in zip(outputs["hidden_states"], expected["hidden_states"], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)
        words = ref.masked_lm(expected["hidden_states"][-1], params)
        close(bert.BertForMaskedLM.from_pretrained(simbert)(inputs), words)

    @pytest.mark.slow
    def test_similar_questions_are_near(self, simbert):
        encoder = TextEncoder.from_pretrained(simbert, pooling="pooler", pooler_activation="linear")
        index = encoder.encode(["今天晚上吃什么", "北京天气好吗", "英语怎么学"]).numpy()
        _, rows = nearest(index, encoder.encode(["如何学习英语"]).numpy(), 1)
        assert rows[0, 0] == 2

    @pytest.mark.slow
    def test_paraphrases(self, simbert):
        tokenizer = bert.read_tokenizer(simbert)
        model = bert.UniLM.from_pretrained(simbert)
        inputs = bert.text_inputs(tokenizer, ["北京的天气怎么样", "今天晚上吃什么"])
        ids = greedy_decode(
            model.step,
            model.start(inputs["input_ids"], 16),
            2,
            start_id=tokenizer.end_id,
            end_id=tokenizer.end_id,
            max_length=16,
        )
        written = [text.decode().replace(" ", "") for text in tokenizer.decode(ids).numpy()]
        assert written == ["北京天气怎么样？", "今天晚上吃什么好"]
