"""Settings of published models: which fields are used, harmless or refused."""

import json
from pathlib import Path

import pytest

from tf_transformer.models.hugging_face import generation_settings

FOLDER = Path(__file__).parents[2] / "vectors" / "published"
# What well-known models have.
PUBLISHED = {
    "gpt2": {"_from_model_config": True, "bos_token_id": 50256, "eos_token_id": 50256},
    "opus-mt": {
        "bad_words_ids": [[58100]],
        "bos_token_id": 0,
        "decoder_start_token_id": 58100,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 512,
        "num_beams": 4,
        "pad_token_id": 58100,
        "renormalize_logits": True,
        "transformers_version": "4.32.0.dev0",
    },
    "bart-large-cnn": {
        "decoder_start_token_id": 2,
        "early_stopping": True,
        "eos_token_id": 2,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": 2,
        "length_penalty": 2.0,
        "max_length": 142,
        "min_length": 56,
        "no_repeat_ngram_size": 3,
        "num_beams": 4,
        "pad_token_id": 1,
    },
    "qwen2-instruct": {
        "bos_token_id": 151643,
        "do_sample": True,
        "eos_token_id": [151645, 151643],
        "pad_token_id": 151643,
        "repetition_penalty": 1.1,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
    },
}


def written(folder, content, name="generation_config"):
    (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def rules(**changed):
    neutral = {
        "bad_words": [],
        "suppressed_first": (),
        "forced_first": None,
        "forced_last": None,
        "repetition_penalty": 1.0,
        "renormalize": False,
        "counts_start": True,
    }
    return {**neutral, **changed}


def test_published_settings(tmp_path):
    found = {
        name: generation_settings(written(tmp_path, content)) for name, content in PUBLISHED.items()
    }
    assert found["gpt2"] == {
        "end_id": (50256,),
        "no_repeat_ngram": 0,
        "token_rules": rules(),
        "n_best": 1,
    }
    assert found["opus-mt"] == {
        "end_id": (0,),
        "pad_id": 58100,
        "start_id": 58100,
        "max_length": 512,
        "no_repeat_ngram": 0,
        "token_rules": rules(bad_words=[(58100,)], forced_last=0, renormalize=True),
        "n_best": 1,
        "beams": {
            "beam_size": 4,
            "length_penalty": 1.0,
            "length_divisor": "length",
            "early_stopping": False,
        },
    }
    summary = found["bart-large-cnn"]
    assert summary["beams"]["early_stopping"] is True and summary["beams"]["length_penalty"] == 2.0
    assert (summary["min_length"], summary["max_length"]) == (56, 142)
    assert summary["token_rules"] == rules(forced_first=0, forced_last=2)
    chat = found["qwen2-instruct"]
    assert chat["end_id"] == (151645, 151643) and "beams" not in chat
    assert chat["sampling"] == {"temperature": 0.7, "top_k": 20, "top_p": 0.8}
    assert chat["token_rules"] == rules(repetition_penalty=1.1)


def test_changes_replace_the_file(tmp_path):
    folder = written(tmp_path, PUBLISHED["opus-mt"])
    changes = {"num_beams": None, "suppress_tokens": [7], "bad_words_ids": [[0], [3, 4]]}
    settings = generation_settings(folder, **changes, eos_token_id=[0, 9])
    assert "beams" not in settings and settings["end_id"] == (0, 9)
    # An end alone is not a bad word, as in transformers.
    assert settings["token_rules"]["bad_words"] == [(3, 4), (7,)]


def test_older_models_have_them_in_config_json(tmp_path):
    settings = generation_settings(FOLDER / "marian")
    assert (settings["end_id"], settings["start_id"], settings["pad_id"]) == ((0,), 28, 28)
    assert settings["token_rules"]["forced_last"] == 0
    assert generation_settings(FOLDER / "qwen2")["end_id"] == ()  # null
    content = {"model_type": "bart", "num_beams": 5, "d_model": 8}
    folder = written(tmp_path, content, "config")
    with pytest.raises(ValueError, match="eos_token_id: expected the id that ends a text in"):
        generation_settings(folder)
    assert generation_settings(folder, eos_token_id=2)["beams"]["beam_size"] == 5


@pytest.mark.parametrize(
    "field, value",
    [
        ("num_beam_groups", 2),
        ("penalty_alpha", 0.6),
        ("typical_p", 0.9),
        ("min_p", 0.1),
        ("encoder_no_repeat_ngram_size", 3),
        ("guidance_scale", 1.5),
        ("sequence_bias", [[[4], -1.0]]),
        ("exponential_decay_length_penalty", [5, 1.1]),
        ("force_words_ids", [[4]]),
        ("stop_strings", ["."]),
        ("early_stopping", "always"),
        ("a_new_field", 1),
        ("eos_token_id", "2"),
        ("bad_words_ids", [3]),
        ("bad_words_ids", 3),
        ("forced_eos_token_id", [2]),
        ("suppress_tokens", [-1]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, field, value):
    folder = written(tmp_path, {"eos_token_id": 2, field: value})
    with pytest.raises(ValueError, match=field):
        generation_settings(folder)


def test_sampled_beams_are_refused(tmp_path):
    folder = written(tmp_path, {"eos_token_id": 2, "do_sample": True, "num_beams": 2})
    with pytest.raises(ValueError, match="do_sample: expected false for beam search"):
        generation_settings(folder)
    ignored = written(tmp_path, {"eos_token_id": 2, "a_new_field": 1})
    assert generation_settings(ignored, ignored_fields=["a_new_field"])["end_id"] == (2,)


def test_a_folder_without_settings(tmp_path):
    with pytest.raises(FileNotFoundError):
        generation_settings(tmp_path)


def test_the_old_form_of_a_forced_first_token(tmp_path):
    content = {"eos_token_id": 2, "bos_token_id": 0, "force_bos_token_to_be_generated": True}
    settings = generation_settings(written(tmp_path, content, "config"))
    assert settings["token_rules"] == rules(forced_first=0)
    content["force_bos_token_to_be_generated"] = False
    settings = generation_settings(written(tmp_path, content, "config"))
    assert settings["token_rules"] == rules()
