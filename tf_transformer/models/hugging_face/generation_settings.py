"""How a published model generates: `generation_config.json`, or older ones' `config.json`."""

from pathlib import Path

from tf_transformer.errors import ArgumentError, check
from tf_transformer.models.bert.checkpoints.config_files import check_fields, read_json, read_table

# The fields of transformers 4 and 5; null means the default.
SETTINGS = read_table("""
max_length max_new_tokens min_length min_new_tokens | used | as named; 20 new tokens by default
eos_token_id pad_token_id decoder_start_token_id |
    used | `end_id`, one or more; `pad_id`; `start_id` of a translator
num_beams length_penalty num_return_sequences | used | `beam_size`, `length_penalty`, `n_best`
early_stopping | [false, true, "never"] | another rule when a search is done
no_repeat_ngram_size | used | `no_repeat_ngram`
bad_words_ids suppress_tokens begin_suppress_tokens forced_bos_token_id forced_eos_token_id
    repetition_penalty | used | `token_rules`
force_bos_token_to_be_generated |
    used | the old form of `forced_bos_token_id`, with the value of `bos_token_id`
renormalize_logits | [false, true] | a value that is neither true nor false
do_sample | [false, true] | a value that is neither true nor false
temperature top_k top_p | used | `sampling`, only with `do_sample`; other random numbers
bos_token_id sep_token_id cls_token_id forced_decoder_ids |
    harmless | how a prompt begins, which is given here
typical_p | [1, 1.0] | locally typical sampling
epsilon_cutoff eta_cutoff | [0, 0.0] | sampling above a probability
min_p top_h | [] | sampling above a share of the largest probability, or by entropy
encoder_no_repeat_ngram_size | [0] | n-grams of the source that do not occur in the target
encoder_repetition_penalty | [1, 1.0] | a penalty for what is not in the source
num_beam_groups | [1] | diverse beam search
diversity_penalty | [0, 0.0] | diverse beam search
penalty_alpha | [0, 0.0] | contrastive search
dola_layers | [] | contrasting layers
constraints force_words_ids | [] | constrained beam search
guidance_scale | [1, 1.0] | classifier-free guidance
sequence_bias | [] | terms for sequences of tokens
exponential_decay_length_penalty | [] | an end that becomes likelier with each token
watermarking_config | [] | watermarks
stop_strings | [] | strings that end a text
max_time | [] | an end after a time
token_healing | [false] | another last token of the prompt
remove_invalid_values | harmless | logits that are not finite raise an error here
use_cache cache_implementation cache_config max_cache_len return_legacy_cache low_memory
    prefill_chunk_size compile_config disable_compile continuous_batching_config use_mtp |
    harmless | time and memory
is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
    assistant_early_exit assistant_lookbehind target_lookbehind assistant_ensemble_weight
    speculation_type prompt_lookup_num_tokens max_matching_ngram_size |
    harmless | speculative decoding, which is not used here
output_attentions output_hidden_states output_scores output_logits return_dict_in_generate
    return_dict | harmless | what else is returned
_from_model_config transformers_version _commit_hash | harmless | origin of the file
""")
_DEFAULTS = {
    **{"num_beams": 1, "length_penalty": 1.0, "num_return_sequences": 1, "early_stopping": False},
    **{"no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "renormalize_logits": False},
    **{"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    **{"bad_words_ids": (), "suppress_tokens": (), "begin_suppress_tokens": ()},
    **{"eos_token_id": (), "forced_bos_token_id": None, "forced_eos_token_id": None},
}


def generation_settings(path, *, ignored_fields=(), **changes):
    """Read with which settings a published model generates, the arguments of `generate`.

    Args:
        path: str or Path, the model's folder: its `generation_config.json`, or without one the same
            fields of `config.json`.
        ignored_fields: collection of str, fields that are unknown here and do not change the
            tokens; others are refused.
        changes: fields that replace those of the file, such as `num_beams=4`; None stands for the
            default of transformers.

    Returns:
        dict, for `generate(model, inputs, **settings)`.

    Raises:
        FileNotFoundError: If there is neither file.
        ValueError: If a field may change the tokens and is unknown, or has a value that is not
            supported; or if `config.json` is read and does not say what ends a text.

    Example:
        >>> _ = Path("generation_config.json").write_text('{"eos_token_id": 2, "num_beams": 4}')
        >>> settings = generation_settings(".", max_new_tokens=50)
        >>> settings["end_id"], settings["beams"]["beam_size"], settings["max_new_tokens"]
        ((2,), 4, 50)
    """
    file = Path(path) / "generation_config.json"
    if file.is_file():
        content = {**read_json(file), **changes}
    else:
        file = Path(path) / "config.json"
        names = {name for row in SETTINGS for name in row.names.split()}
        content = {name: value for name, value in read_json(file).items() if name in names}
        content |= changes
        name, expected = "eos_token_id", f"the id that ends a text in {file}, or null"
        check(name in content, name, expected, "none", "Pass it as an argument.")
    check_fields(content, SETTINGS, file, ignored_fields)
    given = {name: value for name, value in content.items() if value is not None}
    try:
        return _settings({**_DEFAULTS, **given})
    except ArgumentError as error:
        raise error.inside(file) from None


def _settings(fields):
    ends = _ids(fields, "eos_token_id")
    settings = {"end_id": ends, "no_repeat_ngram": fields["no_repeat_ngram_size"]}
    own_names = {"pad_token_id": "pad_id", "decoder_start_token_id": "start_id"}
    lengths = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
    for name in (*own_names, *lengths):
        if name in fields:
            settings[own_names.get(name, name)] = fields[name]
    words = fields["bad_words_ids"]
    if not isinstance(words, tuple | list) or not all(isinstance(w, list) and w for w in words):
        raise ArgumentError("bad_words_ids", "a list of lists of ids", f"{words!r}")
    words = [_ids({"bad_words_ids": word}, "bad_words_ids") for word in words]
    words = [word for word in words if word not in [(end,) for end in ends]]
    if fields.get("force_bos_token_to_be_generated"):
        fields = {**fields, "forced_bos_token_id": fields.get("bos_token_id")}
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        check(type(fields[name]) in (int, type(None)), name, "one id", f"{fields[name]!r}")
    settings["token_rules"] = {
        "bad_words": [*words, *((token,) for token in _ids(fields, "suppress_tokens"))],
        "suppressed_first": _ids(fields, "begin_suppress_tokens"),
        "forced_first": fields["forced_bos_token_id"],
        "forced_last": fields["forced_eos_token_id"],
        "repetition_penalty": fields["repetition_penalty"],
        "renormalize": fields["renormalize_logits"],
        "counts_start": True,
    }
    settings["n_best"] = fields["num_return_sequences"]
    beam_size = fields["num_beams"]
    if beam_size != 1:
        got = f"true with num_beams {beam_size}"
        check(not fields["do_sample"], "do_sample", "false for beam search", got)
        how = {name: fields[name] for name in ("length_penalty", "early_stopping")}
        settings["beams"] = {"beam_size": beam_size, "length_divisor": "length", **how}
    elif fields["do_sample"]:
        how = {name: fields[name] for name in ("temperature", "top_p")}
        settings["sampling"] = {**how, "top_k": fields["top_k"] or None}
    return settings


def _ids(fields, name):
    """A field with one id or a list of them, as a tuple."""
    value = fields[name]
    ids = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not all(type(token) is int and token >= 0 for token in ids):
        raise ArgumentError(name, "ids, whole numbers of at least 0", f"{value!r}")
    return ids
