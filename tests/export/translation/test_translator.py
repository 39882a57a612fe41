"""Translators map strings to strings, for any string and batch, in any process."""

import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from serving_contract import check_serving_contract
from small_run import small_run

from tf_transformer import count_compilations, with_vocab_size
from tf_transformer.export import Translator, shipped_model
from tf_transformer.export.translation.folder import (
    load_transformer,
    load_translator,
    read_description,
    save_translator,
)
from tf_transformer.tokenizers import GraphBPE, Tokenizer

pytestmark = pytest.mark.one_of(10, "served")

STRANGE = [
    "I love you.",
    "",
    "   ",
    "👩‍👩‍👧‍👦 🇨🇳",
    "a\x00b\x01\x1f",
    "x" * 10_000,
    "مرحبا بالعالم שלום",
    "１２３４５",
    "<pad> <s> </s>",
    "Tom",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a trained run and its translator."""
    run = small_run(tmp_path_factory.mktemp("trained"), epochs=6)
    return run, Translator(run.train(), GraphBPE.from_file(run.tokenizer_path))


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory):
    """Return the folder of its SavedModel."""
    run, translator = trained
    path = tmp_path_factory.mktemp("saved") / "model"
    facts = {"weights": 1, "command": "tf-transformer train", "scores": SCORES}
    facts["model"] = run.best_model().get_config()
    save_translator(translator, path, {**run.description(), **facts}, attention="<svg/>")
    return path


@pytest.fixture(scope="module")
def loaded(saved):
    """Return the loaded SavedModel."""
    return tf.saved_model.load(str(saved))


SCORES = {"bleu": 1, "bleu_signature": "a|b", "chrf": 2, "chrf_signature": "c", "sentences": 3}


@pytest.mark.slow
def test_a_batch_equals_its_rows_one_by_one(trained):
    _, translator = trained
    together = translator.translate(tf.constant(STRANGE)).numpy().tolist()
    alone = [translator.translate(tf.constant([text])).numpy()[0] for text in STRANGE]
    assert together == alone
    assert together[1] == together[2] == b"" and together[0] != b""
    for translation in together:
        translation.decode("utf-8")


@pytest.mark.slow
def test_an_empty_batch(trained):
    _, translator = trained
    assert translator.translate(tf.zeros((0,), tf.string)).shape == (0,)


@pytest.mark.slow
def test_nobody_has_to_hold_the_translator(trained):
    run, translator = trained
    again = Translator(run.best_model(), GraphBPE.from_file(run.tokenizer_path)).translate(STRANGE)
    assert again.numpy().tolist() == translator.translate(STRANGE).numpy().tolist()


@pytest.mark.slow
def test_encode_gives_the_encoders_vectors(trained):
    run, translator = trained
    model = run.best_model()
    encoded = translator.encode(tf.constant(["I love you.", "Tom"]))
    padding = tf.cast(encoded["ids"] == 0, tf.float32)[:, None, None, :]
    expected = model.encoder(encoded["ids"], False, padding)
    np.testing.assert_allclose(encoded["vectors"], expected, atol=1e-6)


@pytest.mark.slow
def test_greedy_translation_is_that_of_the_whole_model(trained):
    """Compare the cached graph loop with decoding token by token without a cache."""
    run, translator = trained
    model, tokenizer = run.best_model(), translator.tokenizer
    for text in ("I love you.", "He is here."):
        source = tokenizer.encode([text]).to_list()[0] + [2]
        target = [1]
        while len(target) <= 2 * len(source) + 10:
            logits = np.array(model((np.array([source]), np.array([target])), training=False))
            token = int(np.argmax(logits[0, -1, 1:])) + 1
            if token == 2:
                break
            target.append(token)
        expected = tokenizer.decode(tf.constant([target[: 2 * len(source) + 11]])).numpy()[0]
        assert translator.translate(tf.constant([text])).numpy()[0] == expected


class TestBeams:
    def with_beams(self, trained, **options):
        run, _ = trained
        return Translator(run.best_model(), GraphBPE.from_file(run.tokenizer_path), **options)

    @pytest.mark.slow
    def test_a_batch_equals_its_rows_one_by_one(self, trained):
        translator = self.with_beams(trained, beam_size=3, n_best=2)
        together = translator.translate_beam(STRANGE)
        assert together["translations"].shape == together["scores"].shape == (len(STRANGE), 2)
        for row, text in enumerate(STRANGE):
            alone = translator.translate_beam([text])
            assert (alone["translations"][0] == together["translations"][row]).numpy().all()
            np.testing.assert_allclose(alone["scores"][0], together["scores"][row], rtol=1e-5)
        best, second = together["scores"].numpy().T
        assert (best >= second).all()
        assert together["translations"][1].numpy().tolist() == [b"", b""]  # blank text
        assert together["scores"][1].numpy().tolist() == [0.0, -np.inf]

    @pytest.mark.slow
    def test_one_beam_is_greedy(self, trained):
        translator = self.with_beams(trained, beam_size=1)
        beam = translator.translate_beam(STRANGE)["translations"][:, 0]
        assert beam.numpy().tolist() == translator.translate(STRANGE).numpy().tolist()

    @pytest.mark.slow
    def test_scores_are_those_of_the_whole_model(self, trained):
        """A score is log p of the sentence with its end token, length-normalized once."""
        run, _ = trained
        model = run.best_model()
        translator = self.with_beams(trained, beam_size=4, n_best=3, length_penalty=0.8)
        tokenizer, text = translator.tokenizer, "I love you."
        answer = translator.translate_beam([text])
        source = tokenizer.encode([text]).to_list()[0] + [tokenizer.end_id]
        for translation, score in zip(*(answer[name][0] for name in answer), strict=True):
            target = tokenizer.encode([translation]).to_list()[0] + [tokenizer.end_id]
            inputs = np.array([source]), np.array([[tokenizer.start_id, *target[:-1]]])
            log_p = tf.nn.log_softmax(model(inputs, training=False))[0]
            expected = sum(log_p[place, token] for place, token in enumerate(target))
            divisor = ((5 + len(target)) / 6) ** 0.8
            np.testing.assert_allclose(score, expected / divisor, rtol=1e-4)

    @pytest.mark.slow
    def test_the_signature(self, trained, loaded):
        _, translator = trained
        served = loaded.signatures["translate_beam"]
        answer = served(text=tf.constant(STRANGE))
        expected = translator.translate_beam(STRANGE)
        assert (answer["translations"] == expected["translations"]).numpy().all()
        np.testing.assert_allclose(answer["scores"], expected["scores"], rtol=1e-6)

    @pytest.mark.slow
    def test_the_signature_of_samples(self, trained, loaded):
        _, translator = trained
        served = loaded.signatures["translate_sample"]
        chance = {"seed": 3, "temperature": 0.9, "top_k": 5, "top_p": 0.8}
        answer = served(text=tf.constant(STRANGE), **{k: tf.constant(v) for k, v in chance.items()})
        expected = translator.translate_sample(STRANGE, *chance.values())
        assert (answer["translation"] == expected).numpy().all()
        assert expected[1] == b""  # blank text
        likeliest = translator.translate_sample(STRANGE, 3, 1.0, 1, 1.0)
        assert (likeliest == translator.translate(STRANGE)).numpy().all()
        with pytest.raises(tf.errors.InvalidArgumentError, match="top_p: expected more than 0"):
            translator.translate_sample(STRANGE, 3, 1.0, 5, 0.0)

    @pytest.mark.slow
    def test_the_settings_are_exported(self, trained, loaded):
        _, translator = trained
        settings = loaded.settings.numpy()
        assert json.loads(settings) == json.loads(translator.settings.numpy())
        assert json.loads(settings)["length_limit"] == [2, 10]

    def test_an_empty_batch(self, trained):
        _, translator = trained
        answer = translator.translate_beam(tf.zeros((0,), tf.string))
        assert answer["translations"].shape == answer["scores"].shape == (0, 1)

    @pytest.mark.parametrize(
        "options, message",
        [
            ({"beam_size": 0}, "beam_size: expected at least 1"),
            ({"length_penalty": -1.0}, "length_penalty: expected at least 0"),
            ({"beam_size": 2, "n_best": 3}, "n_best: expected 1 to 2, got 3"),
        ],
    )
    def test_settings_out_of_range(self, trained, options, message):
        with pytest.raises(ValueError, match=message):
            self.with_beams(trained, **options)


@pytest.mark.slow
def test_tensorflow_serving_can_run_it_and_the_included_model(saved):
    for folder in (saved, shipped_model("en-zh")):
        assert check_serving_contract(folder) == {
            "serving_default": ["translation"],
            "translate": ["translation"],
            "translate_beam": ["scores", "translations"],
            "translate_sample": ["translation"],
            "encode": ["ids", "vectors"],
        }


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("calls", [100, pytest.param(10_000, marks=pytest.mark.whole)])
def test_many_threads_get_what_single_calls_give_in_the_same_memory(loaded, calls):
    words = ["Tom", "I", "you", "love", "is", "a", "dog", "here", "not", "run"]
    texts = [*STRANGE[:5], *(" ".join(words[:n] * (1 + n % 3)) for n in range(1, 11))]
    alone = {text: loaded.translate(tf.constant([text])).numpy()[0] for text in texts}
    assert len(set(alone.values())) > 5
    loaded.warm_up(2, 16)  # some batches by XLA, others not

    def call(number):
        batch = random.Random(number).choices(texts, k=1 + number % 5)
        found = loaded.translate(tf.constant(batch)).numpy().tolist()
        assert found == [alone[text] for text in batch]

    held = []
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for part in range(0, calls, calls // 10):
            list(threads.map(call, range(part, part + calls // 10)))
            held.append(int(Path("/proc/self/statm").read_text().split()[1]) / 256)
        with count_compilations() as built:
            list(threads.map(call, range(50)))
    assert built.traces == built.xla == 0
    assert held[-1] - held[2] < 16, held  # MiB


@pytest.mark.slow
def test_it_loads_where_there_is_only_tensorflow(trained, saved, tmp_path):
    _, translator = trained
    script = (
        "import json, sys, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "texts = json.load(sys.stdin)\n"
        "out = model.translate(tf.constant(texts)).numpy()\n"
        "served = model.signatures['serving_default'](text=tf.constant(texts))['translation']\n"
        "assert (served.numpy() == out).all()\n"
        "assert not any(name.startswith('tf_transformer') for name in sys.modules)\n"
        "print(json.dumps([t.decode() for t in out]))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(saved)],
        input=json.dumps(STRANGE),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    expected = [t.decode() for t in translator.translate(tf.constant(STRANGE)).numpy()]
    assert json.loads(done.stdout.splitlines()[-1]) == expected


@pytest.mark.slow
def test_it_loads_as_a_keras_layer(trained, saved):
    _, translator = trained
    layer = keras.layers.TFSMLayer(str(saved), call_endpoint="serving_default")
    out = layer(tf.constant(["I love you."]))["translation"]
    assert out.numpy()[0] == translator.translate(tf.constant(["I love you."])).numpy()[0]


@pytest.mark.slow
def test_it_runs_by_saved_model_cli(trained, saved, tmp_path):
    _, translator = trained
    command = Path(sys.executable).with_name("saved_model_cli")
    arguments = ["--dir", saved, "--tag_set", "serve", "--signature_def", "translate"]
    texts = ["--input_exprs", 'text=["I love you."]', "--outdir", tmp_path]
    done = subprocess.run([command, "run", *arguments, *texts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = translator.translate(tf.constant(["I love you."])).numpy().tolist()
    # The command writes strings as a pickled object array.
    assert np.load(tmp_path / "translation.npy", allow_pickle=True).tolist() == expected


@pytest.mark.slow
def test_it_loads_as_a_keras_model_again(trained, saved):
    run, translator = trained
    model, tokenizer = load_transformer(saved)
    inputs = [tf.constant([[5, 6, 7, 2, 0]]), tf.constant([[1, 9, 8]])]
    expected = run.best_model()(inputs, False)
    np.testing.assert_array_equal(model(inputs, False), expected)
    ids = translator.tokenizer.encode(STRANGE)
    assert tokenizer.encode_strings(tf.constant(STRANGE)).to_list() == ids.to_list()
    model.compile("adam", "mse")  # it can be trained further
    model.train_on_batch(inputs, tf.ones_like(expected))
    assert np.any(model(inputs, False) != expected)


def test_weights_are_stored_once(trained, saved):
    _, translator = trained
    stored = tf.train.list_variables(str(saved / "variables" / "variables"))
    sizes = [int(np.prod(shape)) for name, shape in stored if name.startswith("weights/")]
    assert sum(sizes) == sum(int(np.prod(weight.shape)) for weight in translator.weights)
    others = [name for name, _ in stored if not name.startswith("weights/")]
    assert sorted(others) == [
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "decoding/_beams/_ready/.ATTRIBUTES/VARIABLE_VALUE",
        "decoding/_greedy/_ready/.ATTRIBUTES/VARIABLE_VALUE",
        "num_tokens/.ATTRIBUTES/VARIABLE_VALUE",
        "settings/.ATTRIBUTES/VARIABLE_VALUE",
    ]


def test_description_and_card(saved):
    assert read_description(saved)["scores"] == SCORES
    card = (saved / "README.md").read_text(encoding="utf-8")
    assert "own files" in card and "a\\|b" in card
    assert "(attention.svg)" in card and (saved / "attention.svg").read_text() == "<svg/>"


def test_a_saved_model_of_another_kind_is_not_replaced(trained, saved, tmp_path):
    run, translator = trained
    other = tmp_path / "other"
    shutil.copytree(saved, other)
    for name in ("translator.json", "README.md", "attention.svg"):  # leaves a bare SavedModel
        (other / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in other.rglob("*")}
    with pytest.raises(FileExistsError, match="or one with translator.json to replace"):
        save_translator(translator, other, run.description())
    assert {path: path.stat().st_mtime_ns for path in other.rglob("*")} == before


def test_bad_folders(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="got no folder"):
        load_translator(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="got a folder without them"):
        load_translator(tmp_path)
    for name, text, said in (
        ("other", '{"format": 99, "version": "9"}', "expected format 1, got 99"),
        ("broken", '{"format"', "expected a description in JSON"),
        ("bare", '{"format": 1, "name": "a"}', "got none of .*'model'"),
    ):
        shutil.copytree(saved, tmp_path / name)
        (tmp_path / name / "translator.json").write_text(text)
        with pytest.raises(ValueError, match=said):
            load_translator(tmp_path / name)
    shutil.copytree(saved, tmp_path / "cut")
    data = next((tmp_path / "cut" / "variables").glob("*.data*"))
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ValueError, match="got a damaged one"):
        load_translator(tmp_path / "cut")
    shutil.copytree(saved, tmp_path / "graph")
    graph = tmp_path / "graph" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:100])
    with pytest.raises(ValueError, match="got a damaged one"):
        load_translator(tmp_path / "graph")


@pytest.mark.slow
def test_more_tokens_than_rows_are_refused(trained, tmp_path):
    run, _ = trained
    tokenizer = Tokenizer.load(run.tokenizer_path)
    size = tokenizer.vocab_size
    tokenizer.add_tokens(["[E1]"])
    tokenizer.save(tmp_path / "tokenizer.json")
    graph = GraphBPE.from_file(tmp_path / "tokenizer.json")
    model = run.best_model()
    with pytest.raises(ValueError, match=f"tokenizer: expected at most {size} .* got {size + 1}"):
        Translator(model, graph)
    translator = Translator(with_vocab_size(model, size + 1), graph)
    assert translator.translate(tf.constant(["[E1]"])).shape == (1,)


@pytest.fixture(scope="module")
def wide(trained):
    """A model with rows that have no token, which it would always choose."""
    run, _ = trained
    model = run.best_model()
    wide = with_vocab_size(model, model.get_config()["input_vocab_size"] + 5)
    if wide.final_layer is None:
        table = wide.encoder.embedding.embedding.embeddings
        table.assign(tf.concat([table[:-5], 30 * table[:5]], 0))
    else:
        bias = wide.final_layer.bias
        bias.assign(tf.concat([bias[:-5], tf.fill((5,), 100.0)], 0))
    return wide


@pytest.mark.slow
def test_an_id_without_a_token_is_never_chosen(trained, wide):
    _, narrow = trained
    texts = tf.constant(["Hello.", "I know that.", ""])
    compiled = Translator(wide, narrow.tokenizer, jit_compile=True)
    assert (compiled.translate(texts) == narrow.translate(texts)).numpy().all()
    wide = Translator(wide, narrow.tokenizer)
    assert (wide.translate(texts) == narrow.translate(texts)).numpy().all()
    found, expected = wide.translate_beam(texts), narrow.translate_beam(texts)
    assert (found["translations"] == expected["translations"]).numpy().all()
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5, atol=1e-5)
    sampled = [one.translate_sample(texts, 3, 1.0, 999, 1.0) for one in (wide, narrow)]
    assert (sampled[0] == sampled[1]).numpy().all()


@pytest.mark.slow
def test_nor_after_it_was_exported_and_loaded(trained, wide, saved, tmp_path):
    _, narrow = trained
    texts = tf.constant(["Hello.", "I know that."])
    description = json.loads((saved / "translator.json").read_text())
    description["model"] = wide.get_config()
    translator = Translator(wide, narrow.tokenizer)
    save_translator(translator, tmp_path / "model", description)
    model, tokenizer = load_transformer(tmp_path / "model")
    assert tokenizer.vocab_size == narrow.tokenizer.vocab_size
    assert model.get_config()["target_vocab_size"] == tokenizer.vocab_size + 5
    again = Translator(model, tokenizer)
    assert (again.translate(texts) == narrow.translate(texts)).numpy().all()
