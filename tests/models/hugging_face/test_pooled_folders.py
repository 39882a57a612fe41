"""Decoders with a head for classes, and decoders and T5 as sentence encoders: folders."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from loading import VECTORS
from safetensors.numpy import load_file, save_file

from tf_transformer import LanguageModel, load, save_pretrained
from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert import BertConfig
from tf_transformer.models.hugging_face.folders import load_sentence_encoder
from tf_transformer.models.pooled_model import PooledModel

pytestmark = pytest.mark.one_of(10, "published")

CLASSIFIERS, ENCODERS = VECTORS / "pooled" / "classifiers", VECTORS / "pooled" / "encoders"
NAMES = sorted(path.name for path in CLASSIFIERS.iterdir())


def edited(path, to, file="config.json", tensors=None, **fields):
    """A copy of a folder with other fields in a file, and other tensors."""
    shutil.copytree(path, to)
    content = json.loads((to / file).read_text()) | fields
    (to / file).write_text(json.dumps(content))
    if tensors is not None:
        weights = load_file(to / "model.safetensors") | tensors
        save_file({k: v for k, v in weights.items() if v is not None}, to / "model.safetensors")
    return to


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers_with_padding_on_either_side(name):
    model = load(CLASSIFIERS / name)
    case = json.loads((CLASSIFIERS / name / "cases.json").read_text("utf-8"))
    assert isinstance(model, PooledModel)
    assert ("left" in case) == (name != "gpt2")
    for side in case.keys() & {"left", "right"}:
        inputs = {key: np.array(value) for key, value in case[side].items()}
        expected = inputs.pop("logits")
        np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-5)


def test_without_an_id_of_padding_each_text_has_the_logits_that_it_has_alone():
    model = load(CLASSIFIERS / "gpt2")
    ids, mask = np.array([[5, 1, 9, 0], [7, 3, 4, 6]]), np.array([[1, 1, 1, 0], [1, 1, 1, 1]])
    found = model({"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(found[:1], model({"input_ids": ids[:1, :3]}), atol=1e-6)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_classifier_is_the_same(name, tmp_path):
    model = load(CLASSIFIERS / name)
    save_pretrained(model, tmp_path / "model", tokenizer_from=CLASSIFIERS / name)
    ours, theirs = (
        load_file(folder / "model.safetensors")
        for folder in (tmp_path / "model", CLASSIFIERS / name)
    )
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        np.testing.assert_array_equal(array, theirs[key])
    again = load(tmp_path / "model")
    assert again.get_config() == {**model.get_config(), "name": again.name}
    written, read = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "model", CLASSIFIERS / name)
    )
    for key in ("architectures", "model_type", "problem_type", "eos_token_id"):
        assert written.get(key) == read.get(key)
    labels = read.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    assert written["id2label"] == labels


def test_a_classifier_is_fine_tuned():
    keras.utils.set_random_seed(1)
    model = load(CLASSIFIERS / "qwen2", dtype="mixed_bfloat16")
    inputs = {"input_ids": np.array([[5, 9, 7], [6, 3, 4]] * 4), "attention_mask": np.ones((8, 3))}
    inputs["attention_mask"] = inputs["attention_mask"].astype("int32")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(inputs, np.array([0, 3] * 4), epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]


@pytest.mark.parametrize("head", ["LMHeadModel", "ForSequenceClassification"])
def test_other_heads_of_a_decoder_do_not_matter_to_vectors(head, tmp_path):
    there = edited(
        ENCODERS / "gpt2-mean",
        tmp_path / "model",
        tensors={"score.weight" if "Seq" in head else "lm_head.weight": np.ones((3, 12), "f4")},
        architectures=[f"GPT2{head}"],
    )
    inputs = {"input_ids": tf.constant([[5, 9, 7]])}
    found = load_sentence_encoder(there)(inputs)
    np.testing.assert_array_equal(found, load_sentence_encoder(ENCODERS / "gpt2-mean")(inputs))


def test_the_decoder_of_a_t5_does_not_matter_to_vectors(tmp_path):
    there = edited(
        ENCODERS / "t5-gated",
        tmp_path / "model",
        tensors={"decoder.final_layer_norm.weight": np.ones(12, "f4")}
        | {"lm_head.weight": np.ones((289, 12), "f4")},
        is_encoder_decoder=True,
    )
    inputs = {"input_ids": tf.constant([[5, 9, 7]])}
    found = load_sentence_encoder(there)(inputs)
    np.testing.assert_array_equal(found, load_sentence_encoder(ENCODERS / "t5-gated")(inputs))


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
@pytest.mark.parametrize(
    "folder", [CLASSIFIERS / "gpt2", CLASSIFIERS / "llama", ENCODERS / "t5-mean"]
)
def test_padding_does_not_change_a_vector(folder, pooling):
    model = load_sentence_encoder(folder, pooling=pooling)
    alone = model({"input_ids": np.array([[5, 9, 7]])})
    for row in ([5, 9, 7, 0, 0], [0, 0, 5, 9, 7], [0, 5, 9, 7, 0]):
        ids = np.array([row])
        found = model({"input_ids": ids, "attention_mask": (ids != 0).astype("int32")})
        np.testing.assert_allclose(found, alone, atol=1e-6)


def test_a_mask_of_pairs_and_an_incomplete_dense_layer_are_refused():
    config = BertConfig(13, 8, 2, 2, 16)
    inputs = {"input_ids": np.ones((2, 3), int), "attention_mask": np.ones((2, 3, 3), int)}
    with pytest.raises(ValueError, match="attention_mask: expected shape .batch, length"):
        PooledModel(config)(inputs)
    with pytest.raises(ValueError, match="dense: expected None or .units, activation, use_bias"):
        PooledModel(config, dense=5)


@pytest.mark.parametrize(
    ("name", "file", "fields", "message"),
    [
        ("gpt2-mean", "1_Pooling/config.json", {"pooling_mode": "max"}, "pooling: expected one of"),
        (
            "gpt2-mean",
            "config.json",
            {"model_type": "bart"},
            "model_type: expected a decoder or T5",
        ),
        (
            "t5-mean",
            "2_Dense/config.json",
            {"out_features": 8},
            r"linear.weight: expected shape \(",
        ),
        ("t5-mean", "2_Dense/config.json", {"bias": True}, "linear.bias: missing in the file"),
        ("t5-mean", "2_Dense/config.json", {"activation_function": "os.system"}, "activation_func"),
        ("t5-mean", "2_Dense/config.json", {"module_input_name": "tokens"}, "module_input_name"),
    ],
)
def test_a_folder_of_an_encoder_that_is_refused(name, file, fields, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        load_sentence_encoder(edited(ENCODERS / name, tmp_path / "model", file, **fields))


def test_what_is_refused(tmp_path):
    shutil.copytree(ENCODERS / "llama-last", tmp_path / "bare")
    (tmp_path / "bare" / "modules.json").unlink()
    with pytest.raises(
        ArgumentError, match='pooling: expected "lasttoken", "mean" or "cls", since'
    ):
        load_sentence_encoder(tmp_path / "bare")
    assert load_sentence_encoder(tmp_path / "bare", pooling="mean").get_config()["normalize"]
    with pytest.raises(
        ArgumentError, match="pooling: expected one of lasttoken, mean, cls, got 'p"
    ):
        load_sentence_encoder(tmp_path / "bare", pooling="pooler")
    there = edited(CLASSIFIERS / "qwen2", tmp_path / "wrong", problem_type="ranking")
    with pytest.raises(ArgumentError, match="problem_type: expected one of single_label_class"):
        load(there)
    there = edited(CLASSIFIERS / "llama", tmp_path / "padding", pad_token_id=288)
    with pytest.raises(ArgumentError, match=r"pad_id: expected an id in \[0, 288\), got 288"):
        load(there)
    vectors = load_sentence_encoder(ENCODERS / "gpt2-mean")
    with pytest.raises(ArgumentError, match="model: expected a LanguageModel, .* got PooledModel"):
        save_pretrained(vectors, tmp_path / "vectors")
    other = PooledModel(BertConfig(13, 8, 1, 2, 16, labels=("a", "b")), pooling="lasttoken")
    with pytest.raises(ArgumentError, match="model: expected the architecture of one of gpt2"):
        save_pretrained(other, tmp_path / "other")
    assert not isinstance(load(VECTORS / "text_generation" / "gpt2"), PooledModel)
    assert isinstance(load(VECTORS / "text_generation" / "gpt2"), LanguageModel)
