"""What becomes of each field of a configuration file from another library."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import changed
from tiny_bert import CONFIG as TINY
from tiny_bert import randomised, tiny_folder

from tf_transformer import TextEncoder, bert
from tf_transformer.export.text_models import read_text_settings
from tf_transformer.models.bert.checkpoints.config_files import (
    ALBERT_TOKENIZER,
    CONFIG,
    DENSE,
    LLAMA_TOKENIZER,
    POOLING,
    RELATIVES,
    SENTENCE_BERT,
    TOKENIZER,
    check_fields,
    config_file,
)

pytestmark = pytest.mark.one_of(10, "bert")

ROOT = Path(__file__).resolve().parents[3]
# Under the headings of the docs.
TABLES = {
    "`config.json`": CONFIG,
    "RoBERTa, XLM-RoBERTa": RELATIVES["roberta"],
    "DistilBERT": RELATIVES["distilbert"],
    "ELECTRA": RELATIVES["electra"],
    "`tokenizer_config.json`": TOKENIZER,
    "ALBERT: `tokenizer_config.json`": ALBERT_TOKENIZER,
    "Llama, Mistral: `tokenizer_config.json`": LLAMA_TOKENIZER,
    "`sentence_bert_config.json`": SENTENCE_BERT,
    "`1_Pooling/config.json`": POOLING,
    "`2_Dense/config.json`": DENSE,
}
SIZES = {
    "vocab_size": 29,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 17,
}
# Every field that `to_dict` of BertConfig and AlbertConfig of transformers 5.24 has, that 4.57 had,
# and of the published files named.
WRITTEN = {
    "transformers 5": {
        "_name_or_path": "",
        "add_cross_attention": False,
        "architectures": None,
        "bos_token_id": None,
        "chunk_size_feed_forward": 0,
        "classifier_dropout": None,
        "dtype": "float32",
        "eos_token_id": None,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "is_decoder": False,
        "is_encoder_decoder": False,
        "label2id": {"LABEL_0": 0, "LABEL_1": 1},
        "output_attentions": False,
        "output_hidden_states": False,
        "pad_token_id": 0,
        "problem_type": None,
        "return_dict": True,
        "tie_word_embeddings": True,
        "transformers_version": "5.24.0",
        "use_cache": True,
    },
    "transformers 4": {
        "_attn_implementation_autoset": True,
        "add_cross_attention": False,
        "bad_words_ids": None,
        "begin_suppress_tokens": None,
        "cross_attention_hidden_size": None,
        "decoder_start_token_id": None,
        "diversity_penalty": 0.0,
        "do_sample": False,
        "early_stopping": False,
        "encoder_no_repeat_ngram_size": 0,
        "exponential_decay_length_penalty": None,
        "finetuning_task": None,
        "forced_bos_token_id": None,
        "forced_eos_token_id": None,
        "length_penalty": 1.0,
        "max_length": 20,
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "num_beam_groups": 1,
        "num_beams": 1,
        "num_return_sequences": 1,
        "output_scores": False,
        "position_embedding_type": "absolute",
        "prefix": None,
        "pruned_heads": {},
        "remove_invalid_values": False,
        "repetition_penalty": 1.0,
        "return_dict_in_generate": False,
        "sep_token_id": None,
        "suppress_tokens": None,
        "task_specific_params": None,
        "temperature": 1.0,
        "tf_legacy_loss": False,
        "tie_encoder_decoder": False,
        "tokenizer_class": None,
        "top_k": 50,
        "top_p": 1.0,
        "torch_dtype": "float32",
        "torchscript": False,
        "typical_p": 1.0,
        "use_bfloat16": False,
    },
    "bert-base-chinese": {
        "directionality": "bidi",
        "gradient_checkpointing": False,
        "model_type": "bert",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
    },
    "bert-base-NER": {"_num_labels": 9, "output_past": True, "xla_device": True},
    "bert of transformers 2": {"eos_token_ids": 0, "num_labels": 2, "output_past": True},
    "rubert-tiny2": {"emb_size": 312},
    "TinyBERT": {"cell": {}, "emb_size": 312, "pre_trained": "", "structure": [], "training": ""},
    "an ONNX export": {"transformers.js_config": {"dtype": "q8"}},
    "albert-base-v2": {
        "classifier_dropout_prob": 0.1,
        "down_scale_factor": 1,
        "embedding_size": 5,
        "gap_size": 0,
        "hidden_act": "gelu_new",
        "inner_group_num": 1,
        "layers_to_keep": [],
        "model_type": "albert",
        "net_structure_type": 0,
        "num_hidden_groups": 1,
        "num_memory_blocks": 0,
    },
    "roberta-base": {
        "bos_token_id": 0,
        "eos_token_id": 2,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 514,
        "model_type": "roberta",
        "pad_token_id": 1,
        "type_vocab_size": 1,
    },
    "xlm-roberta-base": {
        "max_position_embeddings": 514,
        "model_type": "xlm-roberta",
        "output_past": True,
        "pad_token_id": 1,
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "use_cache": True,
    },
    "electra-small": {
        "embedding_size": 5,
        "generator_size": "0.25",
        "model_type": "electra",
        "summary_activation": "gelu",
        "summary_last_dropout": 0.1,
        "summary_type": "first",
        "summary_use_proj": True,
    },
}
# DistilBERT's sizes have other names.
DISTILBERT = {
    "activation": "gelu",
    "attention_dropout": 0.1,
    "dim": 12,
    "dropout": 0.2,
    "hidden_dim": 17,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "model_type": "distilbert",
    "n_heads": 3,
    "n_layers": 2,
    "output_past": True,
    "pad_token_id": 0,
    "qa_dropout": 0.3,
    "seq_classif_dropout": 0.4,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "vocab_size": 29,
}


def written(folder, content):
    path = folder / "config.json"
    path.write_text(json.dumps({**SIZES, **content}))
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_published_files_are_read(tmp_path, name):
    config = bert.read_config(written(tmp_path, WRITTEN[name]))
    assert config.hidden_size == 12
    assert config.embedding_width == WRITTEN[name].get("embedding_size", 12)


@pytest.mark.parametrize("name", ["transformers 4", "transformers 5"])
@pytest.mark.parametrize("model_type", RELATIVES)
def test_fields_of_transformers_in_files_of_the_relatives(tmp_path, name, model_type):
    content = {**WRITTEN[name], "model_type": model_type, "embedding_size": 5}
    if model_type == "distilbert":
        content = {**WRITTEN[name], **DISTILBERT}
    elif "roberta" in model_type:
        content |= {"pad_token_id": 1, "embedding_size": None}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content if model_type == "distilbert" else {**SIZES, **content}))
    config = bert.read_config(path)
    assert (config.family, config.hidden_size) == (model_type, 12)
    assert config.pad_token_id == (1 if "roberta" in model_type else None)


def test_the_published_file_of_distilbert(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DISTILBERT))
    config = bert.read_config(tmp_path / "config.json")
    assert config == bert.BertConfig(
        **{**SIZES, "num_hidden_layers": 2},
        hidden_dropout_prob=0.2,
        classifier_dropout=0.4,
        qa_dropout=0.3,
        family="distilbert",
    )


@pytest.mark.parametrize(
    "content, message",
    [
        # ChineseBERT, JinaBERT and nomic-bert; all say that they are a "bert".
        (
            {"glyph_embedding_dim": 1728, "pinyin_map_len": 32},
            "glyph_embedding_dim, pinyin_map_len: expected only known .* got 1728, 32.*ignored_f",
        ),
        ({"position_embedding_type": "alibi"}, "position_embedding_type: expected 'absolute'"),
        (
            {"emb_pooler": "mean", "feed_forward_type": "geglu"},
            "emb_pooler, feed_forward_type: exp",
        ),
        ({"auto_map": {"AutoModel": "x.X"}}, "auto_map: expected None in .*models with their own"),
        ({"rotary_emb_fraction": 1.0}, "rotary_emb_fraction: expected only known fields"),
        ({"per_layer_config": {"0": {"hidden_act": "relu"}}}, "per_layer_config: expected None"),
        ({"directionality": "left"}, "directionality: expected 'bidi'"),
        ({"ln_type": "preln"}, "ln_type: expected 'postln'"),
        ({"pooler_type": "mean"}, "pooler_type: expected 'first_token_transform'"),
        ({"layers_to_keep": [0, 2]}, "layers_to_keep: expected .. in .* got .0, 2."),
        ({"inner_group_num": True}, "inner_group_num: expected 1 in .* got True"),
        ({"is_decoder": 0}, "is_decoder: expected False in .* got 0"),
        ({"labels": ["a", "b"]}, "labels: expected only known fields"),
    ],
)
def test_what_changes_the_result_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        bert.read_config(written(tmp_path, content))


def test_unknown_fields_that_change_nothing(tmp_path):
    path = written(tmp_path, {"team": "search", "labels": ["a", "b"], "quantization_config": None})
    with pytest.raises(ValueError, match="labels, team: expected only known fields"):
        bert.read_config(path)
    plain = bert.read_config(written(tmp_path, {}))
    written(tmp_path, {"team": "search", "labels": ["a", "b"], "is_decoder": None, "alibi": None})
    assert bert.read_config(path, ignored_fields=("team", "labels")) == plain
    with pytest.raises(ValueError, match="^labels: expected only known fields"):
        bert.read_config(path, ignored_fields=("team",))
    written(tmp_path, {"is_decoder": True})
    with pytest.raises(ValueError, match="is_decoder: expected False"):
        bert.read_config(path, ignored_fields=("is_decoder",))


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(ValueError, match="^x: ") as caught:
        check_fields({"x": list(range(9999))}, CONFIG, "config.json")
    assert len(str(caught.value)) < 300


def test_unknown_fields_of_a_checkpoint(tmp_path):
    folder = tiny_folder(tmp_path / "bert")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "team": "search"}))
    for load in (bert.Bert.from_pretrained, TextEncoder.from_pretrained):
        with pytest.raises(ValueError, match="team: expected only known fields in .*config.json"):
            load(folder)
        load(folder, ignored_fields=("team",))


def test_own_files_have_only_known_fields():
    known = {name for row in CONFIG for name in row.names.split()}
    every = bert.BertConfig(
        labels=("a", "b"),
        embedding_size=5,
        num_hidden_groups=1,
        classifier_dropout=0.1,
        pooler_activation="relu",
        layer_sizes=((3, 17),),
        problem_type="regression",
    )
    assert set(config_file(every, "BertModel")) <= known
    assert {field.name for field in dataclasses.fields(bert.BertConfig)} - known == {"labels"}


@pytest.mark.parametrize("heading", TABLES)
def test_no_field_has_two_meanings(heading):
    names = [name for row in TABLES[heading] for name in row.names.split()]
    assert len(names) == len(set(names))


def rows_of(page, heading):
    """The first table below a heading: lists of cells."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    table = text[text.index(f"\n## {heading}") :].partition("|---|\n")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()]


def verdict(row, words):
    if row.only is None:
        return words[row.verdict]
    values = (f"`{json.dumps(value)}`" for value in (*row.only, None))
    return f"{words['only']} {words['or'].join(values)}"


@pytest.mark.parametrize(
    "page, words",
    [
        (
            "checkpoint_fields.md",
            {
                "used": "used",
                "harmless": "harmless",
                "only": "refused unless",
                "or": " or ",
            },
        ),
        (
            "checkpoint_fields.zh-CN.md",
            {"used": "使用", "harmless": "无影响", "only": "拒绝，除非是", "or": " 或 "},
        ),
    ],
)
@pytest.mark.parametrize("heading", TABLES)
def test_the_tables_of_the_docs(page, words, heading):
    rows = rows_of(page, heading)
    expected = [
        [", ".join(f"`{name}`" for name in row.names.split()), verdict(row, words)]
        for row in TABLES[heading]
    ]
    assert [row[:2] for row in rows] == expected
    if "zh" not in page:
        assert [row[2] for row in rows] == [row.why for row in TABLES[heading]]
    assert all(len(row) == 3 and row[2] for row in rows)


@pytest.mark.parametrize(
    "content, message",
    [
        ({"max_seq_length": "9"}, "max_seq_length: expected an integer of at least 3"),
        ({"max_seq_length": True}, "max_seq_length: expected an integer"),
        ({"max_seq_length": 9.0}, "max_seq_length: expected an integer"),
        ({"max_seq_length": 0}, "max_seq_length: expected an integer of at least 3"),
        ({"do_lower_case": "false"}, "do_lower_case: expected true or false"),
        ({"transformer_task": "fill-mask"}, "transformer_task: expected 'feature-extraction'"),
        ({"model_args": {"add_pooling_layer": False}}, "model_args: expected {} in"),
        ({"pad_to": 3}, "pad_to: expected only known fields in .*sentence_bert_config.json"),
    ],
)
def test_text_settings_that_are_refused(tmp_path, content, message):
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_text_settings(tmp_path, 11)


@pytest.mark.parametrize("longest, expected", [(5, 5), (11, None), (10**30, None), (2, None)])
def test_the_tokenizers_maximum_fills_in_a_missing_one(tmp_path, longest, expected):
    folder = tiny_folder(tmp_path / "bert")
    settings = {"model_max_length": longest, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_text_settings(folder, 11) == (None, False)  # no sentence-transformers model
    modality = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    content = {"modality_config": modality, "module_output_name": "token_embeddings"}
    (folder / "sentence_bert_config.json").write_text(json.dumps(content))
    assert read_text_settings(folder, 11) == (expected, False)


class TestUntiedWords:
    """`tie_word_embeddings: false` matters to models that predict words, and to no other."""

    HEADS = (bert.BertForMaskedLM, bert.BertForPreTraining, bert.UniLM)

    @pytest.fixture
    def folder(self, tmp_path):
        config = dataclasses.replace(TINY, labels=("a", "b"))
        randomised(bert.BertForPreTraining(config)).save_pretrained(tmp_path / "bert")
        content = json.loads((tmp_path / "bert" / "config.json").read_text())
        content["tie_word_embeddings"] = False
        (tmp_path / "bert" / "config.json").write_text(json.dumps(content))
        return tmp_path / "bert"

    @pytest.mark.one_of(10)
    @pytest.mark.parametrize(
        "cls",
        [
            bert.Bert,
            bert.BertForSequenceClassification,
            bert.BertForTokenClassification,
            bert.BertForQuestionAnswering,
            bert.BertForNextSentencePrediction,
            bert.BertWithExits,
            bert.SentenceEncoder,
        ],
    )
    def test_models_without_an_output_layer_of_words(self, folder, cls, tmp_path):
        model = cls.from_pretrained(folder, new_head=True)
        assert not model.config.tie_word_embeddings
        model.save_pretrained(tmp_path / "again")
        assert not cls.from_pretrained(tmp_path / "again").config.tie_word_embeddings

    @pytest.mark.parametrize("cls", HEADS)
    def test_models_that_predict_words(self, folder, cls):
        message = f"tie_word_embeddings: expected True for {cls.__name__}, .* got False"
        for new_head in (False, True, None):
            with pytest.raises(ValueError, match=message):
                cls.from_pretrained(folder, new_head=new_head)
        cls.from_pretrained(folder, tie_word_embeddings=True)

    def test_an_output_layer_of_its_own_in_the_file(self, folder):
        def untie(tensors):
            words = tensors["bert.embeddings.word_embeddings.weight"]
            tensors["cls.predictions.decoder.weight"] = words + np.float32(1)

        changed(folder, untie)
        bert.SentenceEncoder.from_pretrained(folder)  # it has no use for it
        for cls in self.HEADS:
            with pytest.raises(ValueError, match="decoder.weight: expected to equal"):
                cls.from_pretrained(folder, tie_word_embeddings=True)
