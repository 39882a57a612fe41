"""A pretraining run learns, records correct metrics, and writes a checkpoint others can read."""

import csv
import json

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from small_pretraining import small_pretraining, write_topics
from tiny_bert import randomised, tiny_folder

from tf_transformer import bert
from tf_transformer.data import TextSource
from tf_transformer.tokenizers import BPETokenizer, Tokenizer, WordPieceTokenizer
from tf_transformer.training import PRETRAINING_PRESETS, PretrainingRun, get_preset

LONG = pytest.mark.one_of(10, "long")


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run over documents of eight topics, and its model."""
    folder = tmp_path_factory.mktemp("learned")
    changes = {"epochs": 20, "tokens_per_batch": 320, "peak_learning_rate": 5e-3, "dropout": 0.0}
    run = small_pretraining(folder, **changes)
    return run, run.train()


def rows_of(run):
    with open(run.folder / "history.csv", encoding="utf-8") as file:
        return [{name: float(n) for name, n in row.items()} for row in csv.DictReader(file)]


def validation_batch(run):
    tokenizer = Tokenizer.load(run.folder / "tokenizer.json")
    batches = run.batches(tokenizer, run.validation_documents)
    return next(iter(batches.dataset(epochs=1)))


@pytest.mark.slow
@LONG
def test_it_learns_words_and_sentences(learned):
    run, _ = learned
    assert run.next_sentence
    words = [w for d in run.validation_documents for s in d for w in s.split()]
    shares = np.unique(words, return_counts=True)[1] / len(words)
    entropy = -np.sum(shares * np.log(shares))  # 3.87; 1.79 if the topic is known
    last = rows_of(run)[-1]
    assert last["val_prediction_logits_loss"] < entropy - 1
    assert last["val_seq_relationship_logits_accuracy"] > 0.7


@LONG
def test_the_history_has_both_tasks_and_the_loss_is_their_sum(learned):
    run, _ = learned
    tasks = ("prediction_logits", "seq_relationship_logits")
    names = [
        "loss",
        *(f"{task}_{kind}" for task in tasks for kind in ("loss", "token_loss", "accuracy")),
    ]
    rows = rows_of(run)
    assert set(rows[0]) == {"epoch", *names, *(f"val_{name}" for name in names)}
    assert len(rows) == 20
    for row in rows:
        parts = row["val_prediction_logits_loss"] + row["val_seq_relationship_logits_loss"]
        assert np.isclose(row["val_loss"], parts, rtol=1e-3)


@LONG
def test_losses_and_accuracies_are_those_of_float64(learned):
    run, model = learned
    inputs, labels = validation_batch(run)
    run.compile(model, 1e-3)
    measured = model.test_on_batch(inputs, labels, return_dict=True)
    positions = inputs.pop("masked_lm_positions")
    logits = model(inputs)  # at every position; the masked ones are selected here
    words = labels["prediction_logits"].numpy()
    rows, slots = np.nonzero(words)
    picked = logits["prediction_logits"].numpy()[rows, positions.numpy()[rows, slots]]
    for name, wanted, scores in (
        ("prediction_logits", words[rows, slots], picked),
        ("seq_relationship_logits", labels["seq_relationship_logits"].numpy(), None),
    ):
        scores = logits[name].numpy() if scores is None else scores
        log_probabilities = ref.log_softmax(scores.astype(np.float64))
        loss = -log_probabilities[np.arange(len(wanted)), wanted].mean()
        assert np.isclose(measured[f"{name}_loss"], loss, rtol=1e-5)
        accuracy = (scores.argmax(-1) == wanted).mean()
        assert np.isclose(measured[f"{name}_accuracy"], accuracy)


@LONG
def test_the_model_and_its_vocabulary_can_be_read(learned):
    run, model = learned
    inputs, _ = validation_batch(run)
    again = bert.BertForPreTraining.from_pretrained(run.model_path)
    for name, logits in model(inputs).items():
        np.testing.assert_array_equal(again(inputs)[name], logits)
    del inputs["masked_lm_positions"]
    plain = bert.Bert.from_pretrained(run.folder / "model")
    expected = model.bert(inputs)
    for name, output in plain(inputs).items():
        np.testing.assert_array_equal(output, expected[name])
    texts = ["Ak bl, unseen CM!"]
    tokenizers = (
        Tokenizer.load(run.model_path / "tokenizer.json"),
        WordPieceTokenizer.load_vocabulary(run.model_path / "vocab.txt"),
    )
    assert tokenizers[0].encode(texts) == tokenizers[1].encode(texts)
    assert tokenizers[0].vocab_size == tokenizers[1].vocab_size == model.config.vocab_size
    config = json.loads((run.model_path / "tokenizer_config.json").read_text())
    assert config["do_lower_case"] is True


@LONG
def test_weights_decay_but_biases_and_normalization_do_not(learned):
    run, _ = learned
    model = run.compiled_model(run.tokenizer, total_steps=5)
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(tf.ones(variable.shape))
    model.optimizer.apply([tf.zeros(variable.shape) for variable in variables])
    smaller = {variable.path: set(np.ravel(variable < 1)) for variable in variables}
    for path, found in smaller.items():
        exempt = path.endswith(("bias", "LayerNorm/gamma", "LayerNorm/beta"))
        assert found == {not exempt}, path
    assert sum(found == {True} for found in smaller.values()) == 12


@pytest.mark.slow
def test_single_sentences_give_masked_words_alone_with_a_vocabulary_from_elsewhere(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(f"lower newest {n}" for n in range(60)), encoding="utf-8")
    vocabulary = tmp_path / "vocab.txt"
    pieces = ["low", "##er", "new", "##est", *"0123456789", *(f"##{n}" for n in range(10))]
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]))
    preset = PRETRAINING_PRESETS["tiny"].with_changes(
        {"lengths": (10,), "whole_words": True, "mask_rate": 0.3, "tokens_per_batch": 100}
    )
    run = PretrainingRun(tmp_path / "run", TextSource(files=(str(file),)), preset, vocabulary)
    assert not run.next_sentence
    model = run.train()
    assert model.config.vocab_size == 29
    names = {"loss", "token_loss", "accuracy"}
    assert set(rows_of(run)[0]) == {"epoch", *names, *(f"val_{name}" for name in names)}
    assert (run.model_path / "vocab.txt").read_text() == vocabulary.read_text() + "\n"
    read = bert.BertForMaskedLM.from_pretrained(run.model_path)
    np.testing.assert_array_equal(read.get_weights()[0], model.get_weights()[0])
    again = PretrainingRun.open(run.folder)
    assert (again.preset, again.source, again.vocabulary) == (preset, run.source, str(vocabulary))
    inputs, words = validation_batch(run)
    ids, words = inputs["input_ids"].numpy(), words.numpy()
    rows, slots = np.nonzero(words)
    columns = inputs["masked_lm_positions"].numpy()[rows, slots]
    ids[rows, columns], asked = words[rows, slots], np.zeros(ids.shape, bool)
    asked[rows, columns] = True
    inside = np.isin(ids, [6, 8, *range(19, 29)])[:, 1:]  # pieces with "##"
    np.testing.assert_array_equal(asked[:, 1:][inside], asked[:, :-1][inside])
    assert asked[:, 1:][inside].any()


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("cls", [bert.Bert, bert.BertForMaskedLM, bert.BertForPreTraining])
def test_a_start_gives_its_sizes_its_vocabulary_and_its_weights(tmp_path, cls):
    words = [f"{topic}{word}" for topic in "ab" for word in "klmnop"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    start = tmp_path / "start"
    first = randomised(cls(bert.BertConfig(len(tokens), 12, 2, 3, 16, max_position_embeddings=16)))
    first.save_pretrained(start)
    (start / "vocab.txt").write_text("\n".join(tokens) + "\n")
    run = small_pretraining(tmp_path, start=start, peak_learning_rate=1e-12)
    last = run.train()
    assert last.config.hidden_size == 12 and last.config.vocab_size == len(tokens)
    assert (run.model_path / "vocab.txt").read_text() == (start / "vocab.txt").read_text()
    before, after = first.variables_by_name(), last.variables_by_name()
    for name in before:  # changed only by a tiny learning rate
        np.testing.assert_allclose(after[name], before[name], atol=1e-6)
    assert len(after) - len(before) == {bert.Bert: 7, bert.BertForMaskedLM: 4}.get(cls, 0)
    assert PretrainingRun.open(run.folder).start == str(start)


def test_a_start_that_does_not_fit(tmp_path):
    start = tiny_folder(tmp_path / "start")
    with pytest.raises(ValueError, match="lengths: expected at most 11, .* got .16,."):
        small_pretraining(tmp_path, start=start).train()
    with pytest.raises(ValueError, match="vocabulary: expected none with a start"):
        small_pretraining(tmp_path, start=start, vocabulary="vocab.txt")
    with pytest.raises(FileNotFoundError, match="start: expected the folder of a checkpoint"):
        small_pretraining(tmp_path, start=tmp_path / "strat")
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):  # not a new vocabulary
        small_pretraining(tmp_path, vocabulary="").train()
    (start / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        small_pretraining(tmp_path, start=start, lengths=(11,)).train()
    assert not (tmp_path / "run").exists()


def test_a_start_whose_vocabulary_is_of_another_size(tmp_path):
    start = tiny_folder(tmp_path / "start")
    with open(start / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("one more\n")
    with pytest.raises(ValueError, match="start: expected at most 20 tokens.* got 21"):
        small_pretraining(tmp_path, start=start, lengths=(11,)).train()
    assert not (tmp_path / "run").exists()


def test_one_document_held_out_makes_no_pairs(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(f"ak {n}.\nal {n}." for n in "bcdefgh"), encoding="utf-8")
    preset = PRETRAINING_PRESETS["tiny"].with_changes({"vocab_size": 60, "validation_share": 0.3})
    run = PretrainingRun(tmp_path / "run", TextSource(files=(str(file),)), preset)
    assert len(run.validation_documents) == 1 and run.next_sentence
    with pytest.raises(ValueError, match="enough to hold some out, got 1 of 6 others"):
        run.train()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name, value",
    [("mask_rate", 1.0), ("peak_learning_rate", 0), ("dropout", 1), ("lengths", (9, 5))],
)
def test_presets_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected"):
        PRETRAINING_PRESETS["tiny"].with_changes({name: value})


def test_what_is_held_out_is_not_trained_on(tmp_path):
    run = small_pretraining(tmp_path)
    parts = [{" ".join(d) for d in p} for p in (run.train_documents, run.validation_documents)]
    assert all(parts) and not parts[0] & parts[1]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [(["a.\nb."] * 3 + ["c."] * 5, True), (["a.\nb."] * 3 + ["c."] * 7, False)],
)
def test_pairs_are_made_where_most_sentences_have_a_neighbor(tmp_path, documents, expected):
    file = tmp_path / "text.txt"
    documents = [f"{n} {document}" for n in range(40) for document in documents]
    file.write_text("\n\n".join(documents), encoding="utf-8")
    source, preset = TextSource(files=(str(file),)), PRETRAINING_PRESETS["tiny"]
    assert PretrainingRun(tmp_path, source, preset).next_sentence is expected
    for choice in (True, False):
        chosen = preset.with_changes({"next_sentence": choice})
        assert PretrainingRun(tmp_path, source, chosen).next_sentence is choice


def test_what_cannot_be_trained_leaves_no_folder(tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("One sentence.\nAnd one more.\n")
    preset = PRETRAINING_PRESETS["tiny"]
    with pytest.raises(ValueError, match="enough for training and validation, got"):
        PretrainingRun(tmp_path / "run", TextSource(files=(str(file),)), preset).train()
    source = TextSource(files=(write_topics(tmp_path / "topics.txt"),))
    bpe = tmp_path / "tokenizer.json"
    BPETokenizer.train(["low lower"], vocab_size=270).save(bpe)
    for vocabulary, message in ((bpe, "WordPiece"), (tmp_path / "none.txt", "no file")):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            PretrainingRun(tmp_path / "run", source, preset, vocabulary).train()
    with pytest.raises(ValueError, match="vocab_size: expected an integer of at least"):
        too_small = preset.with_changes({"vocab_size": 7})
        PretrainingRun(tmp_path / "run", source, too_small).train()
    assert not (tmp_path / "run").exists()


def test_padding_has_the_id_0(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n")
    source = TextSource(files=(write_topics(tmp_path / "topics.txt"),))
    with pytest.raises(ValueError, match="expected the id 0 for \\[PAD\\], .* got 1"):
        PretrainingRun(tmp_path, source, PRETRAINING_PRESETS["tiny"], vocabulary).train()


def test_folders_that_hold_no_pretraining(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run.json"):
        PretrainingRun.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 2, "kind": "BERT", "preset": {"lengths": []}}')
    with pytest.raises(ValueError, match="expected the settings of a run"):
        PretrainingRun.open(tmp_path)


def test_presets():
    assert get_preset("small", PRETRAINING_PRESETS).name == "small"
    with pytest.raises(ValueError, match="preset: expected one of small, tiny, got 'base'"):
        get_preset("base", PRETRAINING_PRESETS)
    with pytest.raises(ValueError, match="epochs: expected at least 1, got 0"):
        PRETRAINING_PRESETS["tiny"].with_changes({"epochs": 0})
