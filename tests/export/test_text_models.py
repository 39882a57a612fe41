"""BERT SavedModels on strings: sentence encoders and classifiers."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from command_line import command_here
from serving_contract import check_serving_contract
from tiny_bert import CONFIG, TOKENS, randomised, tiny_folder

from tf_transformer import (
    EarlyExitClassifier,
    TextClassifier,
    TextEncoder,
    bert,
    count_compilations,
    litert,
    with_vocab_size,
)
from tf_transformer.export import text_models, write_litert
from tf_transformer.export.saving import REQUESTS, load_saved_model
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.serving import Task

pytestmark = pytest.mark.one_of(10, "served")

TEXTS = ["a good film", "", "The PLOT was unknown.", "电影 好 " * 20, "\x00 \u2028 é", "bad"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture(scope="module", params=["padded", "unpad", "XLA"])
def models(request, folder):
    """Return an encoder and a classifier with their expected outputs for `TEXTS`."""
    options = {"unpad": request.param == "unpad"}
    jit = {"jit_compile": request.param == "XLA"}
    tokenizer = bert.read_tokenizer(folder)
    inputs = bert.text_inputs(tokenizer, TEXTS, None, 11)
    encoder = bert.SentenceEncoder.from_pretrained(folder, **options)
    config = bert.BertConfig.of({**CONFIG.to_dict(), "labels": ("坏", "good", "so-so")})
    classifier = randomised(bert.BertForSequenceClassification(config, **options), seed=6)
    # Centre the logits so that the model predicts more than one class.
    mean = tf.reduce_mean(classifier(inputs), axis=0)
    classifier.classifier.bias.assign_sub(mean)
    return {
        "encoder": (TextEncoder(encoder, tokenizer, **jit), encoder(inputs)),
        "classifier": (
            TextClassifier(classifier, tokenizer, **jit),
            tf.nn.softmax(classifier(inputs)),
        ),
    }


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory):
    """Return the folder with the SavedModels of both."""
    folder = tmp_path_factory.mktemp("saved")
    for name, (model, _) in models.items():
        model.save(folder / name)
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    """Return an encoder of all positions; nothing else references its `SentenceEncoder`."""
    return TextEncoder.from_pretrained(folder)


@pytest.mark.one_of(6)
def test_vectors(models):
    encoder, expected = models["encoder"]
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.one_of(10)
def test_classes(models):
    classifier, expected = models["classifier"]
    answer = classifier.classify(TEXTS)
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=1e-5, atol=1e-6)
    names = np.array(["坏", "good", "so-so"])[np.argmax(expected, 1)]
    assert [label.decode() for label in answer["label"].numpy()] == names.tolist()
    assert len(set(names)) > 1


@pytest.mark.slow
def test_texts_in_one_bucket_share_a_program(folder):
    encoder = TextEncoder.from_pretrained(folder, jit_compile=True)
    plain = TextEncoder.from_pretrained(folder)
    with count_compilations() as built:
        for texts in (["a"], ["a film"], ["a bad film"]):  # 1 x 8
            np.testing.assert_allclose(encoder.encode(texts), plain.encode(texts), atol=1e-5)
    assert built.xla == 1
    with count_compilations() as built:
        for count in (3, 4):  # 4 x 11, the longest
            texts = ["电影 好 " * 20] * count
            np.testing.assert_allclose(encoder.encode(texts), plain.encode(texts), atol=1e-5)
    assert built.xla == 1


@pytest.mark.slow
@pytest.mark.parametrize("machine", [False, True], ids=["CPU", "GPU"])
def test_an_accelerator_runs_compiled_programs_by_default(folder, monkeypatch, machine):
    monkeypatch.setattr(text_models, "has_accelerator", lambda: machine)
    encoder = TextEncoder.from_pretrained(folder)
    with count_compilations() as built:
        encoder.encode(["a"])
    assert built.xla == machine
    assert TextEncoder.from_pretrained(folder, jit_compile=False)._call.programs == 0


@pytest.mark.slow
def test_a_warm_model_serves_from_its_programs(folder, tmp_path):
    TextEncoder.from_pretrained(folder).save(tmp_path / "model")
    loaded = load_saved_model(tmp_path / "model")
    expected = loaded.encode(TEXTS).numpy()
    with count_compilations() as built:
        programs = [int(loaded.warm_up(2, length)) for length in (8, 11, 9)]
    assert programs == [1, 2, 2] and built.xla == 2
    with count_compilations() as built:
        vectors = [loaded.encode(TEXTS[i : i + 2]) for i in range(0, 6, 2)]
    assert built.xla == built.traces == 0
    np.testing.assert_allclose(np.concatenate(vectors), expected, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 8 and 11"):
        loaded.warm_up(9, 8)


@pytest.mark.slow
def test_nobody_has_to_hold_the_encoder(folder, whole):
    vectors = whole.encode(TEXTS)
    np.testing.assert_array_equal(vectors, TextEncoder.from_pretrained(folder).encode(TEXTS))


@pytest.mark.slow
@pytest.mark.one_of(10)
def test_loads_where_there_is_only_tensorflow(models, saved, tmp_path):
    script = (
        "import json, sys, tensorflow as tf\n"
        "texts = tf.constant(json.load(sys.stdin))\n"
        "encoder, classifier = (tf.saved_model.load(path) for path in sys.argv[1:])\n"
        "vector = encoder.signatures['serving_default'](text=texts)['vector']\n"
        "served = classifier.signatures['serving_default'](text=texts)\n"
        "labels = classifier.signatures['labels']()['labels']\n"
        "assert not any(name.startswith('tf_transformer') for name in sys.modules)\n"
        "print(json.dumps([vector.numpy().tolist(), served['probabilities'].numpy().tolist(),\n"
        "  [x.decode() for x in served['label'].numpy()], [x.decode() for x in labels.numpy()]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(saved / "encoder"), str(saved / "classifier")],
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        check=True,
    )
    vectors, probabilities, labels, names = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(vectors, models["encoder"][1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probabilities, models["classifier"][1], rtol=1e-5, atol=1e-6)
    assert names == ["坏", "good", "so-so"]
    assert labels == [names[n] for n in np.argmax(probabilities, 1)]


@pytest.mark.one_of(6)
def test_every_weight_is_stored_once_and_nothing_calls_python(models, saved):
    encoder, _ = models["encoder"]
    stored = tf.train.list_variables(str(saved / "encoder" / "variables" / "variables"))
    sizes = [int(np.prod(shape)) for name, shape in stored if name.startswith("weights/")]
    assert sum(sizes) == sum(int(np.prod(weight.shape)) for weight in encoder.weights)
    assert {name for name, _ in stored if not name.startswith("weights/")} == {
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "_call/_ready/.ATTRIBUTES/VARIABLE_VALUE",
    }


@pytest.mark.slow
def test_tensorflow_serving_can_run_them(saved):
    assert check_serving_contract(saved / "encoder") == {"serving_default": ["vector"]}
    assert check_serving_contract(saved / "classifier") == {
        "serving_default": ["label", "probabilities"]
    }
    assert all((saved / name / REQUESTS).is_file() for name in ("encoder", "classifier"))


def test_another_vocabulary_is_refused(folder, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS, "more"]))
    encoder = bert.SentenceEncoder.from_pretrained(folder)
    with pytest.raises(ValueError, match=f"tokenizer: expected at most {len(TOKENS)} tokens"):
        TextEncoder(encoder, bert.read_tokenizer(tmp_path))


@pytest.mark.slow
def test_rows_without_a_token_change_nothing(folder, tmp_path):
    tokenizer = bert.read_tokenizer(folder)
    texts = tf.constant(["one two", "three", ""])
    for cls, make, answer in (
        (bert.SentenceEncoder, TextEncoder, lambda model: model.encode(texts)),
        (
            bert.BertForSequenceClassification,
            TextClassifier,
            lambda model: model.classify(texts)["probabilities"],
        ),
        (
            bert.BertWithExits,
            EarlyExitClassifier,
            lambda model: model.classify(texts)["probabilities"],
        ),
    ):
        model = cls.from_pretrained(folder, new_head=None, labels=("bad", "good"))
        wide = with_vocab_size(model, len(TOKENS) + 5)
        wide.save_pretrained(tmp_path / "wide", tokenizer_from=folder)
        again = cls.from_pretrained(tmp_path / "wide")
        expected = answer(make(model, tokenizer))
        for one in (wide, again):
            np.testing.assert_array_equal(answer(make(one, tokenizer)), expected)
    encoder = TextEncoder.from_pretrained(tmp_path / "wide")
    assert encoder.encode(texts).shape[0] == 3


def test_a_length_past_the_positions_is_refused(folder):
    encoder = bert.SentenceEncoder.from_pretrained(folder)
    with pytest.raises(ValueError, match="max_length: expected at most 11"):
        TextEncoder(encoder, bert.read_tokenizer(folder), 12)


@pytest.mark.slow
def test_the_folder_says_how_long_texts_may_be(whole, tmp_path):
    path = tiny_folder(tmp_path / "bert")
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    short = TextEncoder.from_pretrained(path)
    one, other = (model.encode(["a good film", "a good"]).numpy() for model in (short, whole))
    np.testing.assert_allclose(one[0], one[1], atol=1e-6)
    assert np.abs(other[0] - other[1]).max() > 1e-3


@pytest.mark.parametrize("content", ['{"max_seq_length": "4"}', "[]"])
def test_damaged_settings_are_named(tmp_path, content):
    path = tiny_folder(tmp_path / "bert")
    (path / "sentence_bert_config.json").write_text(content)
    with pytest.raises(ValueError, match="expected .*sentence_bert_config.json"):
        TextEncoder.from_pretrained(path)


@pytest.mark.slow
def test_lower_case_first(folder, tmp_path):
    path = tiny_folder(tmp_path / "bert")
    (path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = TextEncoder.from_pretrained(path)
    (path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    lower = TextEncoder.from_pretrained(path)
    texts = ["A GOOD Film"]
    np.testing.assert_array_equal(lower.encode(texts), cased.encode(["a good film"]))
    assert np.abs(lower.encode(texts) - cased.encode(texts)).max() > 1e-3


def test_a_prompt_is_named(tmp_path):
    path = tiny_folder(tmp_path / "bert")
    settings = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    (path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with pytest.warns(UserWarning, match="the prompt 'search: ' before each text"):
        TextEncoder.from_pretrained(path)


@pytest.mark.one_of(10)
def test_no_texts(models, saved):
    for name, (_, expected) in models.items():
        served = tf.saved_model.load(str(saved / name)).signatures["serving_default"]
        shapes = [tensor.shape for tensor in served(text=tf.constant([], tf.string)).values()]
        assert (0, expected.shape[1]) in shapes


LOGITS = (3.0, 6.7, -7.0)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "problem_type, logits, kind, expected",
    [
        ("single_label_classification", LOGITS, "probabilities", (0.024, 0.976, 0.000)),
        (None, LOGITS, "probabilities", (0.024, 0.976, 0.000)),
        ("multi_label_classification", LOGITS, "probabilities", (0.953, 0.999, 0.001)),
        ("regression", LOGITS, "values", LOGITS),
        (None, (-1.5,), "probabilities", (0.182,)),
        ("multi_label_classification", (-1.5,), "probabilities", (0.182,)),
        ("regression", (-1.5,), "values", (-1.5,)),
    ],
)
def test_what_answers_are(folder, tmp_path, problem_type, logits, kind, expected):
    """In Python, in a SavedModel, by the server, by the command and by LiteRT."""
    labels = ("坏", "good", "so-so")[: len(logits)]
    config = dataclasses.replace(CONFIG, labels=labels, problem_type=problem_type)
    model = bert.BertForSequenceClassification(config)
    model.build()
    model.classifier.kernel.assign(tf.zeros_like(model.classifier.kernel))
    model.classifier.bias.assign(logits)
    model.save_pretrained(tmp_path / "bert", tokenizer_from=folder)
    model = bert.BertForSequenceClassification.from_pretrained(tmp_path / "bert")
    assert model.config == config
    best = labels[np.argmax(logits)]

    def check(found):
        assert sorted(found) == sorted(["label", kind])
        assert [label.decode() for label in found["label"].numpy()] == [best] * 2
        assert found[kind].dtype == tf.float32
        np.testing.assert_allclose(found[kind], [expected] * 2, atol=5e-4)

    classifier = TextClassifier(model, bert.read_tokenizer(folder))
    check(classifier.classify(TEXTS[:2]))
    classifier.save(tmp_path / "saved")
    loaded = load_saved_model(tmp_path / "saved")
    check(loaded.signatures["serving_default"](text=tf.constant(TEXTS[:2])))
    [answer] = Task(tmp_path / "saved")(["a"])
    assert answer["label"] == best and sorted(answer) == sorted(["label", kind])
    np.testing.assert_allclose(answer[kind], expected, atol=5e-4)
    write_litert(model, read_tokenizer_file(folder), tmp_path / "lite")
    lite = litert.load(tmp_path / "lite")
    names, answers = lite.classify(TEXTS[:2])
    assert (names, lite.description["answers"]) == ([best] * 2, config.answers)
    np.testing.assert_allclose(answers, [expected] * 2, atol=5e-4)
    for saved in ("saved", "lite"):
        out = command_here("classify", "--model", tmp_path / saved, "a").stdout.decode()
        label, number, text = out.rstrip("\n").split("\t")
        assert (label, text) == (best, "a")
        assert float(number) == pytest.approx(max(expected), abs=5e-4)


def test_an_encoder_has_no_answers(folder):
    model = bert.Bert.from_pretrained(folder)
    with pytest.raises(ValueError, match="model: expected a text classifier, with labels, got Ber"):
        TextClassifier(model, bert.read_tokenizer(folder))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"half"])
def test_a_damaged_saved_model_is_named(saved, tmp_path, damage):
    shutil.copytree(saved / "encoder", tmp_path / "encoder")
    (tmp_path / "encoder" / "variables" / "variables.index").write_bytes(damage)
    with pytest.raises(ValueError, match="encoder: expected an intact SavedModel"):
        load_saved_model(tmp_path / "encoder")
