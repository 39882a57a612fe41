"""Pooling, and the settings in a sentence-transformers folder."""

import json

import keras
import numpy as np
import pytest
from loading import close
from random_bert import CONFIG, batch, built, twin
from safetensors.numpy import load_file
from tiny_bert import tiny_folder

from tf_transformer import bert

pytestmark = pytest.mark.one_of(3, "core")


def states_of(model, inputs):
    return np.asarray(model.bert(inputs)["sequence_output"], np.float64)


def test_mean():
    model, inputs = built(bert.SentenceEncoder, normalize=False), batch()
    states, keep = states_of(model, inputs), inputs["attention_mask"][..., None]
    close(model(inputs), (states * keep).sum(1) / keep.sum(1))


def test_first_token():
    model, inputs = built(bert.SentenceEncoder, pooling="cls", normalize=False), batch()
    close(model(inputs), states_of(model, inputs)[:, 0])


def test_length_1():
    model, inputs = built(bert.SentenceEncoder), batch()
    plain = np.asarray(twin(model, normalize=False)(inputs), np.float64)
    close(model(inputs), plain / np.linalg.norm(plain, axis=1, keepdims=True))


def test_refuses_another_pooling():
    with pytest.raises(ValueError, match="one of mean, cls, pooler, lasttoken, got .max."):
        bert.SentenceEncoder(CONFIG, pooling="max")


def written(folder, modes, modules=("Transformer", "Pooling", "Normalize")):
    tiny_folder(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    listed = [
        {
            "idx": n,
            "path": "1_Pooling" if name.endswith("Pooling") else "",
            "type": name if "." in name else f"sentence_transformers.models.{name}",
        }
        for n, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


@pytest.mark.parametrize(
    "mode, modules, expected",
    [
        ("cls_token", ("Transformer", "Pooling"), ("cls", False)),
        ("mean_tokens", ("Transformer", "Pooling", "Normalize"), ("mean", True)),
    ],
)
def test_is_followed_unless_told_otherwise(tmp_path, mode, modules, expected):
    modes = {"pooling_mode_cls_token": False, f"pooling_mode_{mode}": True}
    folder = written(tmp_path / "model", modes, modules)
    model = bert.SentenceEncoder.from_pretrained(folder)
    assert (model.pooling, model.normalize) == expected
    other = bert.SentenceEncoder.from_pretrained(folder, pooling="pooler", normalize=True)
    assert (other.pooling, other.normalize) == ("pooler", True)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler"])
@pytest.mark.parametrize("normalize", [True, False])
def test_is_written_and_read_again(tmp_path, pooling, normalize):
    model = built(bert.SentenceEncoder, pooling=pooling, normalize=normalize)
    model.save_pretrained(tmp_path / "saved")
    again = bert.SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert (again.pooling, again.normalize) == (pooling, normalize)
    np.testing.assert_array_equal(again(batch()), model(batch()))


@pytest.mark.parametrize(
    "modes, modules, message",
    [
        (
            {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False},
            ("Transformer", "Pooling"),
            "pooling_mode_max_tokens: expected False in .*1_Pooling.config.json, got True",
        ),
        (
            {"pooling_mode": "max"},
            ("Transformer", "Pooling"),
            "pooling: .* got .'pooling_mode': 'max",
        ),
        ({}, ("Transformer", "Pooling"), "pooling: expected one of"),
        (
            {"pooling_mode_mean_tokens": True, "include_prompt": False},
            ("Transformer", "Pooling"),
            "include_prompt: expected True .* Not supported: leaving out the tokens of a prompt",
        ),
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_attention": False},
            ("Transformer", "Pooling"),
            "pooling_mode_attention: expected only known fields",
        ),
        (
            {"pooling_mode_mean_tokens": True},
            ("Transformer", "Normalize", "Pooling"),
            "Pooling and optionally a Dense and a Normalize, got Transformer, Normalize, Pooling",
        ),
        (
            {"pooling_mode_mean_tokens": True},
            ("Transformer", "Pooling", "Pooling"),
            "Pooling and optionally a Dense and a Normalize, got Transformer, Pooling, Pooling",
        ),
        (
            {"pooling_mode_mean_tokens": True},
            ("Transformer", "my_code.Pooling"),
            "a Transformer of sentence-transformers .*, got my_code.Pooling",
        ),
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            ("Transformer", "Pooling"),
            "pooling: expected one of",
        ),
        (
            {"pooling_mode_mean_tokens": True},
            ("Transformer", "Pooling", "Normalize", "Dense"),
            "a Dense and a Normalize, got Transformer, Pooling, Normalize, Dense",
        ),
        (
            {"pooling_mode_mean_tokens": True},
            ("Transformer", "Pooling", "LSTM"),
            "a Dense and a Normalize, got Transformer, Pooling, LSTM",
        ),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path, modes, modules, message):
    with pytest.raises(ValueError, match=message):
        bert.SentenceEncoder.from_pretrained(written(tmp_path / "model", modes, modules))


DENSE = [(5, "tanh", True), (12, None, False), (7, "tanh", False)]


@pytest.mark.parametrize("dense", DENSE)
@pytest.mark.parametrize("normalize", [False, True])
def test_a_dense_layer_on_the_pooled_vectors(tmp_path, dense, normalize):
    """As LaBSE and the distiluse models have it."""
    config = {"pooling": "cls", "normalize": normalize}
    model, inputs = built(bert.SentenceEncoder, **config, dense=dense), batch()
    if dense[2]:
        model.dense.bias.assign(np.linspace(-1, 1, dense[0]))
    kernel = np.asarray(model.dense.kernel, np.float64)
    bias = np.asarray(model.dense.bias, np.float64) if dense[2] else 0.0
    expected = states_of(model, inputs)[:, 0] @ kernel + bias
    expected = np.tanh(expected) if dense[1] else expected
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    close(model(inputs), expected)
    assert model(inputs).shape[1] == model.width == dense[0]
    assert bert.parameter_table(model)["all"] == model.count_params()
    model.save_pretrained(tmp_path / "model")
    weights = load_file(tmp_path / "model" / "2_Dense" / "model.safetensors")
    np.testing.assert_array_equal(weights["linear.weight"], kernel.T.astype(np.float32))
    assert ("linear.bias" in weights) == dense[2]
    loaded = bert.SentenceEncoder.from_pretrained(tmp_path / "model")
    assert loaded.get_config()["dense"] == dense
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        keras.models.load_model(tmp_path / "model.keras")(inputs), model(inputs)
    )
    plain = bert.SentenceEncoder.from_pretrained(tmp_path / "model", dense=None, normalize=False)
    close(plain(inputs), states_of(model, inputs)[:, 0])
    modes = json.loads((tmp_path / "model" / "1_Pooling" / "config.json").read_text())
    # sentence-transformers refuses others.
    known = ("mean_tokens", "cls_token", "lasttoken")
    assert modes.keys() == {"word_embedding_dimension", *(f"pooling_mode_{x}" for x in known)}
    assert [name for name, value in modes.items() if value is True] == ["pooling_mode_cls_token"]
    loaded.save_pretrained(tmp_path / "again")
    again = bert.SentenceEncoder.from_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(again(inputs), model(inputs))


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"out_features": 6}, r"linear.weight: expected shape \(6, 14\), got \(5, 14\)"),
        ({"out_features": 10**15}, "linear.weight: expected shape"),
        ({"in_features": 10}, r"linear.weight: expected shape \(5, 10\), got \(5, 14\)"),
        ({"out_features": "5"}, "out_features: expected an int in .*config.json, got '5'"),
        ({"bias": 1}, "bias: expected true or false in .*config.json, got 1"),
        ({"bias": False}, "linear.bias: in the file"),
        ({"activation_function": "torch.nn.GELU"}, "activation_function: expected one of torch"),
        ({"module_input_name": "token_embeddings"}, "module_input_name: expected"),
    ],
)
def test_a_dense_layer_that_is_refused(tmp_path, fields, message):
    built(bert.SentenceEncoder, dense=DENSE[0]).save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "2_Dense" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(ValueError, match=message):
        bert.SentenceEncoder.from_pretrained(tmp_path / "model")


def test_a_dense_layer_without_a_class_there(tmp_path):
    model = built(bert.SentenceEncoder, dense=(5, "gelu", True))
    with pytest.raises(ValueError, match="dense: expected one of linear, tanh, got 'gelu'"):
        model.save_pretrained(tmp_path / "model")
    assert not any(tmp_path.iterdir())
    with pytest.raises(ValueError, match="dense: expected None or .units, activation, use_bias"):
        bert.SentenceEncoder(CONFIG, dense=5)


def test_towers_of_dense_layers():
    queries = built(bert.SentenceEncoder, dense=DENSE[0])
    bert.TwoTowers(queries, built(bert.SentenceEncoder, dense=(5, None, False)))
    with pytest.raises(ValueError, match="documents: expected an encoder of width 5"):
        bert.TwoTowers(queries, built(bert.SentenceEncoder))


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("modules.json", "[{", "expected a JSON array in .*modules.json"),
        ("modules.json", "{}", "expected a JSON array in .*modules.json, got a dict"),
        ("modules.json", "[1]", "expected a type and a path for each module"),
        ("1_Pooling/config.json", "", "expected a JSON object in .*config.json"),
    ],
)
def test_damaged_settings(tmp_path, file, content, message):
    folder = written(tmp_path / "model", {"pooling_mode_mean_tokens": True})
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        bert.SentenceEncoder.from_pretrained(folder)


def test_a_model_without_pooler_has_no_such_pooling():
    config = bert.BertConfig(pooler_activation=None)
    with pytest.raises(ValueError, match='pooling: expected "mean" or "cls"'):
        bert.SentenceEncoder(config, pooling="pooler")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_newer_spelling(tmp_path, pooling):
    modules = "base.modules.transformer.Transformer", "base.modules.pooling.Pooling"
    modes = {"pooling_mode": pooling, "embedding_dimension": 12, "include_prompt": True}
    modules = [f"sentence_transformers.{name}" for name in modules]
    folder = written(tmp_path / "model", modes, modules)
    assert bert.SentenceEncoder.from_pretrained(folder).pooling == pooling


def test_all_padding_is_no_division_by_zero():
    model, inputs = built(bert.SentenceEncoder), batch()
    inputs["attention_mask"][0] = 0
    vectors = model(inputs)
    assert not vectors[0].numpy().any() and np.isfinite(vectors).all()
