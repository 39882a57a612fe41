"""The fields that published configs have: all are known, and null means what it says."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tf_transformer.models.hugging_face import load, save_pretrained

pytestmark = pytest.mark.one_of(3, "core")

FOLDER = Path(__file__).parents[2] / "vectors" / "published"
LABELS = {
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
}
OF_BART = {
    **LABELS,
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "add_bias_logits": False,
    "attention_dropout": 0.0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "decoder_layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "dropout": 0.1,
    "gradient_checkpointing": False,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "num_hidden_layers": 2,
    "torch_dtype": "float32",
    "transformers_version": "4.22.2",
    "use_cache": True,
}
OF_LLAMA = {
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
    "use_cache": True,
}
# What files on the hub have besides the sizes.
PUBLISHED = {
    "Helsinki-NLP/opus-mt-en-de": (
        "marian",
        {
            **OF_BART,
            "_name_or_path": "/tmp/Helsinki-NLP/opus-mt-en-de",
            "add_final_layer_norm": False,
            "bad_words_ids": [[28]],
            "bos_token_id": 0,
            "forced_eos_token_id": 0,
            "max_length": 512,
            "normalize_before": False,
            "normalize_embedding": False,
            "num_beams": 6,
            "share_encoder_decoder_embeddings": True,
            "static_position_embeddings": True,
        },
    ),
    "sshleifer/distilbart-cnn-12-6": (
        "bart",
        {
            **OF_BART,
            "add_final_layer_norm": False,
            "early_stopping": True,
            "extra_pos_embeddings": 2,
            "force_bos_token_to_be_generated": True,
            "forced_bos_token_id": 0,
            "length_penalty": 2.0,
            "min_length": 56,
            "no_repeat_ngram_size": 3,
            "normalize_before": False,
            "normalize_embedding": True,
            "output_past": True,
            "prefix": " ",
            "replacing_rate": 0,
            "static_position_embeddings": False,
            "student_decoder_layers": None,
            "student_encoder_layers": None,
            "task_specific_params": {"summarization": {"num_beams": 4}},
        },
    ),
    "facebook/mbart-large-50": (
        "mbart",
        {
            **OF_BART,
            "add_final_layer_norm": True,
            "normalize_before": True,
            "normalize_embedding": True,
            "static_position_embeddings": False,
            "tokenizer_class": "MBart50Tokenizer",
        },
    ),
    "facebook/nllb-200-distilled-600M": (
        "m2m_100",
        {**OF_BART, "max_length": 200, "tokenizer_class": "NllbTokenizer"},
    ),
    "google/flan-t5-small": (
        "t5-gated",
        {
            "n_positions": 512,
            "output_past": True,
            "task_specific_params": {},
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        },
    ),
    "openai-community/gpt2-medium": (
        "gpt2",
        {
            "n_ctx": 23,
            "n_special": 0,
            "predict_special_tokens": True,
            "summary_activation": None,
            "summary_first_dropout": 0.1,
            "summary_proj_to_labels": True,
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        },
    ),
    "TinyLlama/TinyLlama-1.1B-Chat": (
        "llama",
        {**OF_LLAMA, "pretraining_tp": 1, "rope_scaling": None, "rope_theta": 10000.0},
    ),
    "mistralai/Mistral-7B-Instruct-v0.2": (
        "mistral",
        {**OF_LLAMA, "rope_theta": 1000000.0, "sliding_window": None},
    ),
    "Qwen/Qwen2.5-0.5B": (
        "qwen2",
        {
            **OF_LLAMA,
            "max_window_layers": 24,
            "rope_scaling": None,
            "rope_theta": 1000000.0,
            "sliding_window": 32768,
            "use_mrope": False,
            "use_sliding_window": False,
        },
    ),
}


def with_fields(folder, name, fields):
    """A copy of a small model whose config has further fields."""
    shutil.copytree(FOLDER / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    return folder


@pytest.mark.one_of(6)
@pytest.mark.parametrize("published", PUBLISHED)
def test_all_fields_of_a_published_config_are_known(tmp_path, published):
    name, fields = PUBLISHED[published]
    load(with_fields(tmp_path / "model", name, fields))


def test_a_window_that_is_null_is_none(tmp_path):
    model = load(with_fields(tmp_path / "model", "mistral", {"sliding_window": None}))
    assert model.architecture.window is None
    assert load(FOLDER / "mistral").architecture.window == 2
    save_pretrained(model, tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    # A Mistral without a window is a Llama, unless the file says null.
    assert config["model_type"] == "llama" or config["sliding_window"] is None
    ids = np.arange(6, 20)[np.newaxis]
    np.testing.assert_array_equal(load(tmp_path / "again")(ids), model(ids))


def test_heads_that_are_null_are_those_of_the_queries(tmp_path):
    folder = with_fields(tmp_path / "model", "mistral", {"num_key_value_heads": None})
    with pytest.raises(ValueError, match=r"k_proj.weight: expected shape \(36, 24\)"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("gpt2", {"n_head": 0}, "n_head: expected a whole number, at least 1, in .* got 0"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads: expected a whole number"),
        ("bart", {"normalize_before": True}, "normalize_before: expected False"),
        ("mbart", {"normalize_before": False}, "normalize_before: expected True"),
        ("bart", {"num_hidden_layers": 5}, "encoder_layers, num_hidden_layers: expected one"),
        ("qwen2", {"use_mrope": True}, "use_mrope: expected False"),
        ("marian", {"pad_token_id": None}, "pad_id: expected an id"),
        ("llama", {"rope_parameters": {"rope_theta": float("nan")}}, "rope_scaling: .*finite"),
        ("llama", {"rope_parameters": {"rope_theta": 10**400}}, "rope_scaling: .*finite"),
        ("llama", {"rms_norm_eps": 10**400}, "rms_norm_eps: expected a number, at least 0"),
        pytest.param(
            "t5", {"dropout_rate": 2}, r"dropout_rate: expected a number in \[0, 1\)", id="rate"
        ),
        ("gpt2", {"resid_pdrop": 1.0}, r"resid_pdrop: expected a number in \[0, 1\).* got 1.0"),
    ],
)
def test_a_value_that_changes_the_model_is_refused(tmp_path, name, fields, message):
    with pytest.raises(ValueError, match=message):
        load(with_fields(tmp_path / "model", name, fields))
