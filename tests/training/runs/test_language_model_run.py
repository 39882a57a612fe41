"""A run of a language model learns, reports the right perplexity, and can be opened again."""

import csv
import json
import math

import numpy as np
import pytest
import reference_numpy as ref
from small_language_model import WORDS, small_language_model
from small_run import small_run

from tf_transformer import (
    Architecture,
    GlobalLossScale,
    PreNorm,
    RotaryPositions,
    continue_texts,
)
from tf_transformer.data import TextSource
from tf_transformer.tokenizers import Tokenizer
from tf_transformer.training import (
    LANGUAGE_MODEL_PRESETS,
    LanguageModelRun,
    PretrainingRun,
    TrainingRun,
    get_preset,
)

pytestmark = pytest.mark.one_of(10, "runs")

LONG = pytest.mark.one_of(10, "long")

ARCHITECTURE = Architecture(RotaryPositions(), residual=PreNorm())


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run over circles of words, and its model."""
    folder = tmp_path_factory.mktemp("learned")
    run = small_language_model(
        folder, architecture=ARCHITECTURE.to_dict(), epochs=10, peak_learning_rate=0.02
    )
    return run, run.train()


@LONG
def test_it_learns_to_count(learned):
    run, model = learned
    tokenizer = Tokenizer.load(run.tokenizer_path)
    for sampling in (None, {"temperature": 0.1}):
        texts = continue_texts(model, tokenizer, ["three four", "seven one"], sampling=sampling)
        for text in texts:
            first = WORDS.index(text.split()[0])
            # The text was cut at the model's length, perhaps within a word.
            words = text.split()[:5]
            assert words == [WORDS[(first + n) % 7] for n in range(5)]


@LONG
def test_the_perplexity_is_that_of_float64(learned):
    """Every token of the held-out documents once, read in blocks of sixteen."""
    run, model = learned
    tokenizer = Tokenizer.load(run.tokenizer_path)
    losses = []
    for ids in tokenizer.encode(run.validation_documents):
        tokens = [1, *ids, 2]
        for at in range(0, len(tokens) - 1, 16):
            block = np.array(tokens[at : at + 17])
            logits = model(block[None, :-1], training=False).numpy()[0].astype(np.float64)
            losses.extend(-ref.log_softmax(logits)[np.arange(len(block) - 1), block[1:]])
    assert math.isclose(run.perplexity(model), math.exp(np.mean(losses)), rel_tol=1e-4)
    assert 1.0 < run.perplexity(model) < 3.0


@LONG
def test_the_history_and_the_settings(learned):
    run, model = learned
    with open(run.folder / "history.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = {"loss", "token_loss", "accuracy"}
    assert set(rows[0]) == {"epoch", *names, *(f"val_{name}" for name in names)}
    # The best model has the lowest exact loss, and exp of it is the perplexity.
    best = min(float(row["val_token_loss"]) for row in rows)
    assert math.isclose(run.perplexity(model), math.exp(best), rel_tol=1e-5)
    settings = json.loads((run.folder / "run.json").read_text("utf-8"))
    assert settings["preset"]["architecture"] == ARCHITECTURE.to_dict()
    again = LanguageModelRun.open(run.folder)
    assert (again.preset, again.source) == (run.preset, run.source)
    assert again.preset.new_architecture() == ARCHITECTURE
    (run.folder.parent / "circles.txt").rename(run.folder.parent / "gone.txt")
    read, tokenizer = again.best_model(), again.tokenizer  # which need no texts
    (run.folder.parent / "gone.txt").rename(run.folder.parent / "circles.txt")
    assert tokenizer.vocab_size == model.get_config()["vocab_size"]
    for one in (model, read):
        assert Architecture.from_dict(one.get_config()["architecture"]) == ARCHITECTURE
    for ours, theirs in zip(read.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_held_out_documents_are_whole_and_not_trained_on(tmp_path):
    run = small_language_model(tmp_path)
    train, validation = set(run.train_documents), set(run.validation_documents)
    assert train and validation and not train & validation
    whole = {" ".join(document) for document in run.source.load()}
    assert train | validation == whole


@LONG
def test_weights_decay_but_biases_and_normalization_do_not(learned):
    run, model = learned
    for precision in ("float32", "mixed_float16"):
        preset = run.preset.with_changes({"precision": precision})
        again = LanguageModelRun(run.folder, run.source, preset)
        again.compile(model, again.schedule(total_steps=5))
        optimizer = model.optimizer
        if precision == "mixed_float16":
            assert isinstance(optimizer, GlobalLossScale)
            optimizer = optimizer.inner_optimizer
        exempt = {
            variable.path.rsplit("/", 1)[1]
            for variable in model.trainable_variables
            if not optimizer._use_weight_decay(variable)
        }
        assert exempt == {"bias", "gamma", "beta"}


@LONG
def test_the_warm_up_ends_before_the_last_step(learned):
    run, _ = learned
    for share, steps in ((0.0, 0), (0.5, 2), (1.0, 4)):
        preset = run.preset.with_changes({"warmup_share": share})
        schedule = LanguageModelRun(run.folder, run.source, preset).schedule(total_steps=5)
        assert schedule.warmup_steps == steps


def test_folders_without_such_a_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run.json"):
        LanguageModelRun.open(tmp_path)
    (tmp_path / "pairs").mkdir()
    other = small_run(tmp_path / "pairs")
    other.folder.mkdir()
    other.write_settings()
    with pytest.raises(ValueError, match="expected a language model run .*, got a translator run"):
        LanguageModelRun.open(other.folder)
    run = small_language_model(tmp_path)
    run.folder.mkdir()
    run.write_settings()
    with pytest.raises(FileNotFoundError, match="weights of a finished epoch, .* train-lm"):
        LanguageModelRun.open(run.folder).best_model()
    for kind, message in (
        (TrainingRun, r"a translator run \(tf-transformer train\), got a language model run"),
        (PretrainingRun, r"a BERT run \(tf-transformer pretrain\), got a language model run"),
    ):
        with pytest.raises(ValueError, match=f"expected {message}"):
            kind.open(run.folder)


def test_what_cannot_be_trained_leaves_no_folder(tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("only one document\n", "utf-8")
    preset = LANGUAGE_MODEL_PRESETS["tiny"]
    with pytest.raises(ValueError, match="enough for training and validation"):
        LanguageModelRun(tmp_path / "run", TextSource(files=(str(file),)), preset).train()
    with pytest.raises(ValueError, match="vocab_size: expected an integer of at least 259"):
        small_language_model(tmp_path, vocab_size=7).train()
    assert not (tmp_path / "run").exists()


def test_presets():
    assert get_preset("small", LANGUAGE_MODEL_PRESETS).name == "small"
    with pytest.raises(ValueError, match="preset: expected one of small, tiny, got 'base'"):
        get_preset("base", LANGUAGE_MODEL_PRESETS)
    with pytest.raises(ValueError, match="peak_learning_rate: expected a positive"):
        LANGUAGE_MODEL_PRESETS["tiny"].with_changes({"peak_learning_rate": 0.0})
    with pytest.raises(ValueError, match=r"num_layers: expected a whole number, got \[1, 2\]"):
        LANGUAGE_MODEL_PRESETS["tiny"].with_changes({"num_layers": [1, 2]})
