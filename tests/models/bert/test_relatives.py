"""RoBERTa, XLM-RoBERTa, DistilBERT and ELECTRA: positions, texts, files and training."""

import dataclasses
import json
import shutil

import keras
import layer_harness as harness
import numpy as np
import pytest
import tensorflow as tf
from bert_vectors import GOLDEN, PREFIXES, RELATIVES
from checkpoint_files import changed, changed_config, write_tensorflow
from command_line import command_here
from loading import close
from random_bert import CONFIG, batch
from safetensors.numpy import load_file, save_file
from small_pretraining import small_pretraining
from tiny_bert import randomised
from tiny_relatives import LABELS, ROBERTA, ROWS, SIZES, relatives_folder

from tf_transformer import bert
from tf_transformer.compression import quantized
from tf_transformer.data import LabelledTexts
from tf_transformer.models.bert.bert_config import FAMILIES
from tf_transformer.training import FineTuning, fine_tune

pytestmark = pytest.mark.one_of(10, "published")


def copied(name, folder):
    shutil.copytree(GOLDEN / name, folder / "model")
    return folder / "model"


class TestPositions:
    """Of RoBERTa, which count only tokens, from `pad_token_id` + 1."""

    def states(self, ids, config=ROBERTA, segment=0, **options):
        ids = tf.constant(ids)
        mask = tf.cast(ids != config.pad_token_id, tf.int32)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids + segment}
        return randomised(bert.Bert(config, **options))(inputs)["sequence_output"].numpy()

    @pytest.mark.parametrize("pad", [1, 3])
    @pytest.mark.parametrize("unpad", [False, True])
    @pytest.mark.one_of(4)
    def test_padding_is_irrelevant_wherever_it_is(self, pad, unpad):
        config = dataclasses.replace(ROBERTA, pad_token_id=pad)
        tokens = [0, 7, 8, 2]
        padded = [[*tokens, pad, pad], [pad, pad, *tokens], [0, pad, 7, 8, pad, 2]]
        states = self.states(padded, config, unpad=unpad)
        expected = self.states([tokens], config)[0]
        for row, ids in zip(states, padded, strict=True):
            close(row[np.array(ids) != pad], expected)

    def test_as_many_tokens_as_there_are_rows(self):
        config = dataclasses.replace(ROBERTA, type_vocab_size=2)
        assert config.max_length == 11
        longest, longer = [[5] * 11], [[5] * 12]
        alone = self.states(longest, config, segment=1)
        padded = self.states([[5] * 11 + [1] * 4], config, segment=1)  # padding takes no row
        close(padded[:, :11], alone)
        message = r"at most 11 tokens \(max_position_embeddings - pad_token_id - 1\)"
        with pytest.raises(ValueError, match=message):
            self.states(longer, config)
        model = randomised(bert.Bert(config))
        graph = tf.function(model, autograph=False)
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most 11 tokens"):
            graph({"input_ids": tf.constant(longer)})
        by_xla = tf.function(model, jit_compile=True, autograph=False)
        found = by_xla({"input_ids": tf.constant([*longer, [5] * 11 + [1]])})["sequence_output"]
        assert np.isnan(found[0]).all() and np.isfinite(found[1, :11]).all()

    def test_ragged_ids_are_padded_with_the_id_of_padding(self):
        model = randomised(bert.Bert(ROBERTA))
        ragged = model({"input_ids": tf.ragged.constant([[0, 7, 8, 2], [0, 2]])})
        dense = {
            "input_ids": [[0, 7, 8, 2], [0, 2, 1, 1]],
            "attention_mask": [[1] * 4, [1, 1, 0, 0]],
        }
        close(
            ragged["sequence_output"],
            model({k: np.array(v) for k, v in dense.items()})["sequence_output"],
            1e-6,
        )

    def test_equal_texts_are_no_negatives(self):
        towers = bert.TwoTowers(randomised(bert.SentenceEncoder(ROBERTA)))

        def padded(*rows):
            ids = np.array(rows)
            return {"input_ids": ids, "attention_mask": (ids != 1).astype(np.int32)}

        queries = padded([0, 5, 2], [0, 6, 2])
        documents, negatives = padded([0, 7, 2], [0, 8, 2]), padded([0, 7, 2, 1], [0, 9, 9, 2])
        scores = towers((queries, documents, negatives)).numpy()
        assert scores[0, 2] == -1e9 and (scores[[0, 0, 1, 1], [0, 3, 1, 2]] > -1e9).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"family": "deberta"}, "family: expected one of roberta, .*, or None, got 'deberta'"),
        ({"family": "roberta", "pad_token_id": -1}, "pad_token_id: expected an integer in"),
        ({"family": "roberta", "pad_token_id": 29}, "pad_token_id: expected an integer in"),
        ({"family": "roberta", "pad_token_id": 1.0}, "pad_token_id: expected an integer in"),
        ({"family": "roberta", "pad_token_id": True}, "pad_token_id: expected an integer in"),
        ({"family": ["roberta"]}, "family: expected one of roberta, .*, or None"),
        ({"family": "roberta", "pad_token_id": 12}, "max_position_embeddings: expected more than"),
        ({"pad_token_id": 1}, "pad_token_id: expected None, since the positions of this family"),
        ({"family": "electra", "pad_token_id": 1}, "pad_token_id: expected None"),
        ({"family": "distilbert", "qa_dropout": 1}, "qa_dropout: expected a number in"),
        ({"type_vocab_size": 0}, "type_vocab_size: expected a positive integer"),
        ({"family": "roberta", "type_vocab_size": 0}, "type_vocab_size: expected a positive"),
    ],
)
def test_settings_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        bert.BertConfig(**{**SIZES, **changes})


def test_what_a_family_implies():
    assert bert.BertConfig(**SIZES).max_length == 13
    roberta = bert.BertConfig(**SIZES, family="xlm-roberta")
    assert (roberta.pad_token_id, roberta.qa_dropout) == (1, None)
    distilbert = bert.BertConfig(**SIZES, family="distilbert")
    assert distilbert.type_vocab_size == 0
    assert (distilbert.classifier_dropout, distilbert.qa_dropout) == (0.2, 0.1)
    assert bert.BertConfig.of(distilbert.to_dict()) == distilbert


def test_distilbert_ignores_segments():
    model = bert.Bert.from_pretrained(GOLDEN / "DistilBertModel")
    ids = np.array([[3, 7, 8]])
    types = np.array([[0, 1, 5]])
    both = model({"input_ids": ids, "token_type_ids": types}), model({"input_ids": ids})
    np.testing.assert_array_equal(*(outputs["sequence_output"] for outputs in both))
    assert not any("token_type" in name for name in model.variables_by_name())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "cls", [bert.BertForPreTraining, bert.BertForNextSentencePrediction, bert.UniLM]
)
def test_heads_that_only_bert_has(cls, family):
    with pytest.raises(ValueError, match=f"family: expected None, .* no {cls.__name__}, got"):
        cls(bert.BertConfig(**SIZES, family=family))


def test_the_head_that_only_electra_has():
    with pytest.raises(ValueError, match="family: expected electra, .* no Electra"):
        bert.ElectraForPreTraining(bert.BertConfig(**SIZES))


@pytest.mark.parametrize(
    "name, rates",
    [
        # Where a dropout layer is, in the order of the calls.
        ("RobertaForSequenceClassification", [0.3, 0.3]),
        ("ElectraForSequenceClassification", [0.3, 0.3]),
        ("DistilBertForSequenceClassification", [0.3]),
        ("RobertaForTokenClassification", [0.3]),
        ("DistilBertForTokenClassification", [0.0]),  # of `dropout`, the layers' own
        ("DistilBertForQuestionAnswering", [0.4]),
        ("RobertaForQuestionAnswering", []),
    ],
)
def test_dropout_of_the_heads(name, rates, monkeypatch):
    options = {"classifier_dropout": 0.3, "hidden_dropout_prob": 0.0}
    if name.startswith("DistilBert"):
        options["qa_dropout"] = 0.4
    model = RELATIVES[name].from_pretrained(
        GOLDEN / name, attention_probs_dropout_prob=0.0, **options
    )
    inside, found = model.bert._flatten_layers(), []
    dropout = type(model.bert.embeddings.dropout)
    call = dropout.call

    def recorded(self, x, training=None):
        if training and self not in inside:
            found.append(self.rate)
        return call(self, x, training=training)

    inside = [*inside]
    monkeypatch.setattr(dropout, "call", recorded)
    model({"input_ids": np.array([[3, 7, 8]])}, training=True)
    assert found == rates


class TestFiles:
    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_a_sharded_folder(self, tmp_path, prefix):
        folder = copied(f"{prefix}ForSequenceClassification", tmp_path)
        load = bert.BertForSequenceClassification.from_pretrained
        whole, tensors = load(folder), load_file(folder / "model.safetensors")
        names = sorted(tensors)
        parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
        for part, some in parts.items():
            save_file({name: tensors[name] for name in some}, folder / part)
        (folder / "model.safetensors").unlink()
        index = {"weight_map": {name: part for part, some in parts.items() for name in some}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for one, other in zip(load(folder).weights, whole.weights, strict=True):
            np.testing.assert_array_equal(one, other)
        (folder / "model-2.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match="model-2.safetensors, listed in the index"):
            load(folder)

    @pytest.mark.parametrize("prefix", PREFIXES)
    @pytest.mark.parametrize("bare", [False, True])
    @pytest.mark.one_of(10)
    def test_the_encoder_of_another_task(self, tmp_path, prefix, bare):
        """With and without the prefix of names; heads stay behind."""
        folder = copied(f"{prefix}ForSequenceClassification", tmp_path)
        whole = bert.BertForSequenceClassification.from_pretrained(folder).bert
        scope = "roberta." if "oberta" in prefix else f"{prefix.lower()}."

        def without_prefix(tensors):
            for name in [*tensors] if bare else ():
                tensor = tensors.pop(name)
                if name.startswith(scope):
                    tensors[name.removeprefix(scope)] = tensor

        changed(folder, without_prefix)
        model = bert.Bert.from_pretrained(folder)
        assert model.config.pooler_activation is None
        ids = {"input_ids": np.array([[0, 7, 8, 2]])}
        np.testing.assert_array_equal(model(ids)["sequence_output"], whole(ids)["sequence_output"])
        tagger = bert.BertForTokenClassification.from_pretrained(
            folder, new_head=True, labels=("a", "b")
        )
        assert tagger(ids).shape == (1, 4, 2)
        if prefix != "DistilBert" or bare:  # its two heads have a common name
            with pytest.raises(ValueError, match="classifier.weight: missing in the file"):
                bert.BertForTokenClassification.from_pretrained(folder)

    @pytest.mark.parametrize(
        "name, copies",
        [
            (
                "RobertaForMaskedLM",
                {
                    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
                    "lm_head.decoder.bias": "lm_head.bias",
                },
            ),
            (
                "DistilBertForMaskedLM",
                {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
            ),
            (
                "ElectraForMaskedLM",
                {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
            ),
        ],
    )
    def test_copies_of_tied_weights(self, tmp_path, name, copies):
        folder, load = copied(name, tmp_path), bert.BertForMaskedLM.from_pretrained
        changed(folder, lambda t: t.update({copy: t[of].copy() for copy, of in copies.items()}))
        load(folder)
        for copy in copies:
            changed(folder, lambda t, copy=copy: t.update({copy: t[copy] + 1}))
            with pytest.raises(ValueError, match=f"{copy}: expected to equal"):
                load(folder)
            changed(folder, lambda t, copy=copy: t.update({copy: t[copy] - 1}))
        changed_config(folder, tie_word_embeddings=False)
        with pytest.raises(ValueError, match="tie_word_embeddings: expected True"):
            load(folder)

    @pytest.mark.parametrize(
        "name, changes",
        [
            ("RobertaModel", {"layer_sizes": ((2, 17), (1, 17), (2, 5))}),
            ("RobertaModel", {"pooler_activation": "linear"}),
            ("DistilBertModel", {"layer_norm_eps": 1e-5}),
            ("DistilBertModel", {"embedding_size": 5}),
            ("ElectraModel", {"embedding_size": 12}),
            ("ElectraModel", {"num_hidden_groups": 1}),
        ],
    )
    def test_what_nobody_else_has(self, tmp_path, name, changes):
        config = bert.read_config(GOLDEN / name / "config.json", **changes)
        model = randomised(bert.Bert(config))
        model.save_pretrained(tmp_path / "saved")
        content = json.loads((tmp_path / "saved" / "config.json").read_text())
        assert content["model_type"] == "tf_transformer_bert"
        again = bert.Bert.from_pretrained(tmp_path / "saved")
        assert again.config == config
        ids = {"input_ids": np.array([[0, 7, 8, 2]])}
        np.testing.assert_array_equal(again(ids)["sequence_output"], model(ids)["sequence_output"])

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_pruned_heads(self, tmp_path, prefix):
        config = bert.read_config(GOLDEN / f"{prefix}Model" / "config.json")
        config = dataclasses.replace(config, layer_sizes=((2, 17), (1, 17), (2, 17)))
        randomised(bert.Bert(config)).save_pretrained(tmp_path / "saved")
        content = json.loads((tmp_path / "saved" / "config.json").read_text())
        assert (content["model_type"], content["pruned_heads"]) == (PREFIXES[prefix], {"1": [0]})
        assert bert.Bert.from_pretrained(tmp_path / "saved").config == config

    @pytest.mark.parametrize(
        "name, content, message",
        [
            ("RobertaModel", {"embedding_size": 5}, "embedding_size: expected None in"),
            ("RobertaModel", {"is_decoder": True}, "is_decoder: expected False"),
            ("RobertaModel", {"position_embedding_type": "relative_key"}, "position_embedding_t"),
            ("RobertaModel", {"auto_map": {"AutoModel": "x.X"}}, "auto_map: expected None"),
            ("RobertaModel", {"pad_token_id": 40}, "pad_token_id: expected an integer in"),
            ("RobertaModel", {"max_position_embeddings": 11}, "position_embeddings.weight: expect"),
            ("RobertaModel", {"vocab_size": 31}, "word_embeddings.weight: expected shape"),
            ("RobertaModel", {"n_layers": 3}, "n_layers: expected only known fields"),
            ("DistilBertModel", {"hidden_size": 12}, "hidden_size: expected None in"),
            ("DistilBertModel", {"type_vocab_size": 2}, "type_vocab_size: expected None in"),
            ("DistilBertModel", {"layer_norm_eps": 1e-5}, "layer_norm_eps: expected 1e-12"),
            ("DistilBertModel", {"dim": 14}, "word_embeddings.weight: expected shape"),
            ("DistilBertModel", {"n_layers": 4}, "layer.3.ffn.lin1.weight: missing in the file"),
            ("DistilBertModel", {"auto_map": {"AutoModel": "x.X"}}, "auto_map: expected None"),
            ("ElectraModel", {"num_hidden_groups": 1}, "num_hidden_groups: expected None in"),
            ("ElectraModel", {"embedding_size": 12}, "embeddings_project.weight: in the file"),
            ("ElectraModel", {"model_type": "roberta"}, "embedding_size: expected None in"),
            ("XLMRobertaModel", {"model_type": "xlm-roberta-xl"}, "model_type: expected one of"),
            ("RobertaModel", {"model_type": "bert", "family": [1]}, "family: expected one of"),
        ],
    )
    def test_configurations_that_are_refused(self, tmp_path, name, content, message):
        folder = copied(name, tmp_path)
        changed_config(folder, **content)
        with pytest.raises(ValueError, match=message):
            bert.Bert.from_pretrained(folder)

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_every_size_must_be_there(self, tmp_path, prefix):
        folder = copied(f"{prefix}Model", tmp_path)
        content = json.loads((folder / "config.json").read_text())
        name = "dim" if prefix == "DistilBert" else "hidden_size"
        del content[name]
        (folder / "config.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=f"path: expected {name} in .*config.json"):
            bert.Bert.from_pretrained(folder)

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_weights_that_are_refused(self, tmp_path, prefix):
        folder = copied(f"{prefix}ForSequenceClassification", tmp_path)
        load = bert.BertForSequenceClassification.from_pretrained
        name = next(n for n in load_file(folder / "model.safetensors") if "classifier" in n)
        changed(folder, lambda t: t.pop(name))
        with pytest.raises(ValueError, match=f"(?s)nothing was loaded.*{name}: missing in the"):
            load(folder)
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(FileNotFoundError, match="pytorch_model.bin, a pickle.*not supported"):
            load(folder)

    def test_a_tensorflow_checkpoint(self, tmp_path):
        folder = write_tensorflow(
            tmp_path / "google", randomised(bert.Bert(bert.BertConfig(**SIZES)))
        )
        changed = {"model_type": "roberta", "pad_token_id": 1, **SIZES}
        (folder / "bert_config.json").write_text(json.dumps(changed))
        with pytest.raises(ValueError, match="safetensors of transformers for a model of type rob"):
            bert.Bert.from_pretrained(folder)

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_keras_files(self, tmp_path, prefix):
        name = f"{prefix}ForSequenceClassification"
        model = RELATIVES[name].from_pretrained(GOLDEN / name)
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        ids = {"input_ids": np.array([[0, 7, 8, 2]])}
        np.testing.assert_array_equal(again(ids), model(ids))


FEW = [
    ("roberta", bert.BertForSequenceClassification),
    ("distilbert", bert.BertForQuestionAnswering),
    ("electra", bert.ElectraForPreTraining),
]


@pytest.mark.parametrize("family, cls", FEW, ids=[family for family, _ in FEW])
class TestHarness:
    def case(self, family, cls):
        config = dataclasses.replace(CONFIG, family=family)
        calls = tuple({"inputs": batch(*shape)} for shape in ((2, 5), (3, 7), (2, 5)))
        return harness.Case(lambda **kwargs: cls(config, **kwargs), calls)

    @pytest.mark.one_of(6)
    def test_eager_is_xla(self, family, cls):
        harness.check_compiled(self.case(family, cls))

    @pytest.mark.one_of(6)
    def test_eager_is_a_saved_model(self, family, cls, tmp_path):
        harness.check_saved_model(self.case(family, cls), tmp_path)

    def test_config(self, family, cls):
        harness.check_config(self.case(family, cls))

    @pytest.mark.one_of(6)
    @pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
    def test_policy(self, family, cls, policy):
        case = self.case(family, cls)
        layer = case.make(dtype=policy)
        case.apply(layer, case.tensors())
        layer.set_weights(case.layer.get_weights())
        outputs = case.apply(layer, case.tensors())
        for one, other in zip(outputs, case.apply(case.layer, case.tensors()), strict=True):
            assert one.dtype == tf.float32  # a softmax follows
            np.testing.assert_allclose(one, other, atol=0.05 * np.abs(other).max())

    def test_int8(self, family, cls):
        case = self.case(family, cls)
        model = case.layer
        few = quantized(model)
        one, other = (np.stack(case.apply(m, case.tensors())) for m in (few, model))
        np.testing.assert_allclose(one, other, atol=0.1 * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, "albert"])
def test_fine_tuning_changes_every_weight(tmp_path, family):
    folder, data = relatives_folder(tmp_path, family), LabelledTexts(LABELS, ROWS, [], [])
    model = bert.BertForSequenceClassification.from_pretrained(
        folder, new_head=True, labels=LABELS, unpad=True
    )
    before = {name: variable.numpy() for name, variable in model.variables_by_name().items()}
    settings = FineTuning(epochs=2, batch_size=4, max_length=11)
    fine_tune(model, bert.read_tokenizer(folder), data, settings, verbose=0)
    same = {
        name
        for name, variable in model.variables_by_name().items()
        if np.array_equal(variable, before[name])
    }
    assert not {name for name in same if not name.endswith("key/bias")}  # whose gradient is 0


@pytest.mark.slow
def test_the_command_fine_tunes(tmp_path):
    folder, tsv = relatives_folder(tmp_path, "roberta"), tmp_path / "texts.tsv"
    tsv.write_text("".join(f"{LABELS[n]}\t{text}\n" for text, n in ROWS), "utf-8")
    files = [f"--{part}={tsv}" for part in ("train", "validation", "test")]
    tuned = ["--epochs", 2, "--model", folder, "--output", tmp_path / "tuned"]
    done = command_here("finetune", *files, *tuned)
    assert done.returncode == 0, done.stderr.decode()
    model = bert.BertForSequenceClassification.from_pretrained(tmp_path / "tuned" / "model")
    assert (model.config.family, model.config.labels) == ("roberta", LABELS)
    answer = command_here("classify", "a good film", "--model", tmp_path / "tuned")
    inputs = bert.text_inputs(bert.read_tokenizer(tmp_path / "tuned" / "model"), ["a good film"])
    probability = float(tf.reduce_max(tf.nn.softmax(model(inputs))))
    assert float(answer.stdout.decode().split("\t")[1]) == pytest.approx(probability, abs=1e-4)


@pytest.mark.slow
def test_exits_of_a_model_without_a_pooler(tmp_path):
    folder = relatives_folder(tmp_path, "distilbert")
    model = bert.BertWithExits.from_pretrained(folder, new_head=True, labels=LABELS)
    model.save_pretrained(tmp_path / "exits")
    again = bert.BertWithExits.from_pretrained(tmp_path / "exits")
    ids = {"input_ids": np.array([[2, 7, 3]])}
    np.testing.assert_array_equal(again(ids), model(ids))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_pretraining_goes_on_with_masked_words(tmp_path, family):
    words = [f"{topic}{word}" for topic in "ab" for word in "klmnop"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = bert.BertConfig(len(tokens), 12, 2, 3, 16, max_position_embeddings=16, family=family)
    first = randomised(bert.BertForMaskedLM(config))
    first.save_pretrained(tmp_path / "start")
    (tmp_path / "start" / "vocab.txt").write_text("\n".join(tokens) + "\n")
    run = small_pretraining(tmp_path, start=tmp_path / "start", peak_learning_rate=1e-12)
    assert not run.next_sentence  # although the documents have them
    last = run.train()
    assert (type(last), last.config.family) == (bert.BertForMaskedLM, family)
    before, after = first.variables_by_name(), last.variables_by_name()
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], atol=1e-6)


def test_pretraining_needs_words(tmp_path):
    start = relatives_folder(tmp_path, "roberta")
    with pytest.raises(ValueError, match="model.type"):
        small_pretraining(tmp_path, start=start, lengths=(11,)).train()
