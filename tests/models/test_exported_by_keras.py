"""Functional Keras models around ours are exported by Keras and TensorFlow, and give their results.

Axes: B texts, T length.
"""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import ComplexEmbedding, ComplexToReal, Encoder, TokenEmbedding, bert
from tf_transformer import LanguageModel as DecoderOnly
from tf_transformer import Transformer as EncoderDecoder

pytestmark = pytest.mark.one_of(10, "parts")

V, D = 29, 6
SIZES = {"num_layers": 1, "d_model": D, "num_heads": 3, "dff": 5}
CONFIG = bert.BertConfig(V, D, 2, 3, 5, max_position_embeddings=7, labels=("a", "b"))
IDS = np.array([[5, 28, 7], [2, 8, 0]])
BERT_INPUTS = {
    "input_ids": IDS,
    "token_type_ids": np.array([[0, 0, 1], [0, 1, 0]]),
    "attention_mask": np.int64(IDS != 0),
}

# Loads and runs what was saved, with TensorFlow alone.
LOADER = """
import json, sys
import numpy as np
import tensorflow as tf

for line in sys.stdin:
    path, inputs = json.loads(line)
    if path.endswith(".tflite"):
        runner = tf.lite.Interpreter(path).get_signature_runner()
        specs = {name: spec["dtype"] for name, spec in runner.get_input_details().items()}
    else:
        loaded = tf.saved_model.load(path)
        runner = loaded.signatures["serving_default"]
        specs = runner.structured_input_signature[1]
        specs = {name: spec.dtype.as_numpy_dtype for name, spec in specs.items()}
    given = {}
    for name, key in zip(sorted(specs), sorted(inputs), strict=True):  # "inputs", "inputs_1", ...
        x = np.array(inputs[key], specs[name])
        given[name] = x if path.endswith(".tflite") else tf.constant(x)
    outputs = runner(**given)
    assert "tf_transformer" not in sys.modules
    print(json.dumps([np.asarray(outputs[name]).tolist() for name in sorted(outputs)]), flush=True)
"""


@pytest.fixture(scope="module")
def loaded():
    """A function from a path and inputs to the outputs, in another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOADER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def outputs(path, inputs):
        given = {name: np.asarray(x).tolist() for name, x in inputs.items()}
        process.stdin.write(json.dumps([str(path), given]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    with process:
        yield outputs
        process.stdin.close()


def around_bert(cls, dtype):
    inputs = {name: keras.Input((None,), dtype=dtype, name=name) for name in BERT_INPUTS}
    outputs = cls(CONFIG)(inputs)
    outputs = [outputs[name] for name in sorted(outputs)] if isinstance(outputs, dict) else outputs
    return keras.Model(inputs, outputs), BERT_INPUTS


def with_more_layers(dtype):
    model, _ = around_bert(bert.BertForTokenClassification, dtype)
    inputs = {name: keras.Input((None,), dtype=dtype, name=name) for name in BERT_INPUTS}
    x = keras.Sequential([keras.layers.Dense(3), keras.layers.Softmax()])(model(inputs))
    return keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x)), BERT_INPUTS


def around(layer, dtype, *more):
    model = keras.Sequential([keras.Input((None,), dtype=dtype, name="ids"), layer, *more])
    return model, {"ids": IDS}


def translator(dtype):
    inputs = {name: keras.Input((None,), dtype=dtype, name=name) for name in ("inp", "tar")}
    model = EncoderDecoder(
        **SIZES, input_vocab_size=V, target_vocab_size=V, pe_input=7, pe_target=7
    )
    outputs = model((inputs["inp"], inputs["tar"]))
    return keras.Model(inputs, keras.layers.Dense(2)(outputs)), {"inp": IDS, "tar": IDS[:, :2]}


MODELS = {
    "classifier": lambda dtype: around_bert(bert.BertForSequenceClassification, dtype),
    "more layers": with_more_layers,
    "Transformer": translator,
    "LanguageModel": lambda dtype: around(
        DecoderOnly(**SIZES, vocab_size=V, max_position=7), dtype
    ),
    "Encoder": lambda dtype: around(
        Encoder(**SIZES, input_vocab_size=V, maximum_position_encoding=7), dtype
    ),
    "TokenEmbedding": lambda dtype: around(TokenEmbedding(V, D, 7), dtype),
    "ComplexEmbedding": lambda dtype: around(ComplexEmbedding(V, D), dtype, ComplexToReal(5)),
}
HEADS = [
    bert.Bert,
    bert.BertForMaskedLM,
    bert.BertForNextSentencePrediction,
    bert.BertForPreTraining,
    bert.BertForQuestionAnswering,
    bert.BertForTokenClassification,
    bert.BertWithExits,
    bert.SentenceEncoder,
    bert.UniLM,
]


def check(found, model, inputs, tolerance=1e-5):
    expected = tf.nest.flatten(model(inputs if len(inputs) > 1 else next(iter(inputs.values()))))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64", None])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.one_of(10)
def test_saved_and_loaded_without_this_library(name, dtype, loaded, tmp_path):
    if dtype is None and name in ("classifier", "more layers"):
        with pytest.raises(ValueError, match="attention_mask: expected integers, got float32"):
            MODELS[name](dtype)
        return
    model, inputs = MODELS[name](dtype)
    model.export(tmp_path / "exported", verbose=False)
    check(loaded(tmp_path / "exported", inputs), model, inputs)
    tf.saved_model.save(model, tmp_path / "saved")
    check(loaded(tmp_path / "saved", inputs), model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("cls", HEADS)
@pytest.mark.one_of(10)
def test_every_head(cls, loaded, tmp_path):
    model, inputs = around_bert(cls, "int32")
    tf.saved_model.save(model, tmp_path / "saved")
    check(loaded(tmp_path / "saved", inputs), model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classifier", "LanguageModel"])
def test_an_archive_and_litert(name, loaded, tmp_path):
    model, inputs = MODELS[name]("int32")
    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = {key: tf.TensorSpec((None, None), tf.int32) for key in inputs}
    spec = spec if len(spec) > 1 else spec["ids"]
    archive.add_endpoint("serve", lambda x: model(x, training=False), [spec])
    archive.write_out(tmp_path / "archive", verbose=False)
    check(loaded(tmp_path / "archive", inputs), model, inputs)
    model.export(tmp_path / "model.tflite", format="litert", verbose=False)
    one = {key: x[:1, :1] for key, x in inputs.items()}  # the shape of a file that is not resized
    check(loaded(tmp_path / "model.tflite", one), model, one, 1e-4)


@pytest.mark.slow
def test_a_half_precision_policy(loaded, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, inputs = MODELS["classifier"]("int32")
        tf.saved_model.save(model, tmp_path / "saved")
    finally:
        keras.config.set_dtype_policy("float32")
    check(loaded(tmp_path / "saved", inputs), model, inputs, 2e-2)
