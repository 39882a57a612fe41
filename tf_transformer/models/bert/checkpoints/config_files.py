"""Configuration files of checkpoints: what each field means here, reading and writing.

The tables of docs/checkpoint_fields.md are the same.
"""

import dataclasses
import reprlib  # short, whatever a file contains
from pathlib import Path
from typing import NamedTuple

from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import parse_json
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.bert.bert_config import BertConfig


class Fields(NamedTuple):
    """Fields with one meaning."""

    names: str  # separated by spaces
    why: str  # what they are used for, or why they change nothing here
    only: tuple | None = None  # the values that are understood; null means the default
    used: bool = False

    @property
    def verdict(self):
        """ "used", "harmless" or "only"."""
        return "used" if self.used else "harmless" if self.only is None else "only"


# Hugging Face's config.json, transformers 2 to 5, and Google's bert_config.json and
# albert_config.json.
CONFIG = (
    Fields(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings type_vocab_size embedding_size num_hidden_groups",
        "sizes; compared with the shapes of the weights",
        used=True,
    ),
    Fields(
        "hidden_act",
        "the names of transformers, except `prelu`, `sqrtsoftplus` and `xielu`",
        used=True,
    ),
    Fields("layer_norm_eps initializer_range", "as named", used=True),
    Fields(
        "hidden_dropout_prob attention_probs_dropout_prob classifier_dropout "
        "classifier_dropout_prob",
        "rates in training; the last is ALBERT's name for the third",
        used=True,
    ),
    Fields(
        "id2label num_labels",
        "names of the classes; `num_labels` is only used without `id2label`",
        used=True,
    ),
    Fields("problem_type", "how a text classifier turns logits into answers", used=True),
    Fields(
        "sentence_transformers sbert_ce_default_activation_function",
        "how a cross-encoder turns logits into answers, if there is no `problem_type`",
        used=True,
    ),
    Fields(
        "tie_word_embeddings",
        "false is refused by models that predict words, since their output layer is the table of "
        "word embeddings; other models have no such layer",
        used=True,
    ),
    Fields("pruned_heads", "how many heads are left in each layer", used=True),
    Fields("model_type architectures", "the kind of model", used=True),
    Fields("architecture layer_sizes pooler_activation", "fields of this library", used=True),
    Fields("position_embedding_type", "relative positions inside attention", only=("absolute",)),
    Fields(
        "is_decoder add_cross_attention is_encoder_decoder",
        "decoders, in which tokens do not attend to later tokens",
        only=(False,),
    ),
    Fields("inner_group_num", "ALBERT with several layers in a group", only=(1,)),
    Fields("layers_to_keep", "only some of the layers", only=([],)),
    Fields("quantization_config", "weights in another format", only=()),
    Fields("auto_map", "models with their own code", only=()),
    Fields("per_layer_config", "layers that differ from each other", only=()),
    Fields("directionality", "attention in one direction", only=("bidi",)),
    Fields("pooler_type", "other poolers", only=("first_token_transform",)),
    Fields("ln_type", "layer normalization in another place", only=("postln",)),
    Fields(
        "chunk_size_feed_forward gradient_checkpointing torchscript use_cache use_bfloat16 "
        "output_past tf_legacy_loss xla_device",
        "they change memory and time, or the form of the result, in other programs",
    ),
    Fields(
        "_attn_implementation _attn_implementation_autoset _attn_implementation_internal "
        "_experts_implementation_internal attn_implementation _flash_attn_2_enabled",
        "ways to compute the same attention",
    ),
    Fields("dtype torch_dtype", "weights of any float type are read and kept in float32"),
    Fields(
        "output_attentions output_hidden_states return_dict tie_last_hidden_states",
        "the call decides what is returned",
    ),
    Fields(
        "pad_token_id",
        "`attention_mask` marks the padding; the tokenizer defines the padding token",
    ),
    Fields(
        "bos_token_id eos_token_id eos_token_ids sep_token_id cls_token_id unk_token_id "
        "mask_token_id",
        "the tokenizer's files define the special tokens",
    ),
    Fields(
        "tokenizer_class do_lower_case",
        "the tokenizer's files define how texts are split into tokens",
    ),
    Fields("label2id _num_labels label_names", "`id2label` has the names and their number"),
    Fields(
        "cross_attention_hidden_size tie_encoder_decoder decoder_start_token_id",
        "only for decoders, which are refused",
    ),
    Fields(
        "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens "
        "diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
        "encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty "
        "forced_bos_token_id forced_eos_token_id length_penalty max_length min_length "
        "no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups "
        "num_beams num_return_sequences output_scores prefix remove_invalid_values "
        "repetition_penalty return_dict_in_generate suppress_tokens target_lookbehind "
        "task_specific_params temperature top_k top_p typical_p",
        "only for text generation with transformers",
    ),
    Fields(
        "summary_type summary_use_proj summary_activation summary_proj_to_labels "
        "summary_first_dropout summary_last_dropout",
        "for other kinds of models; BERT does not read them",
    ),
    Fields(
        "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
        "down_scale_factor gap_size net_structure_type num_memory_blocks",
        "Google's own code does not read them",
    ),
    Fields(
        "cell emb_size pre_trained structure training",
        "left in the files of TinyBERT and rubert-tiny; no code reads them",
    ),
    Fields(
        "_commit_hash _name_or_path finetuning_task language name name_or_path net_type "
        "transformers.js_config transformers_version",
        "origin and use of the file",
    ),
)

# tokenizer_config.json next to a vocab.txt.
TOKENIZER = (
    Fields(
        "do_lower_case strip_accents tokenize_chinese_chars",
        "how text is normalized; must agree with a tokenizer.json",
        used=True,
    ),
    Fields(
        "model_max_length",
        "the maximum number of tokens of a sentence encoder whose sentence_bert_config.json has "
        "none",
        used=True,
    ),
    Fields(
        "tokenizer_class",
        "other tokenizers, with a vocab.txt",
        only=("BertTokenizer", "BertTokenizerFast"),
    ),
    Fields("auto_map", "tokenizers with their own code", only=()),
    Fields("do_basic_tokenize", "splitting texts only at spaces", only=(True,)),
    Fields("clean_text", "keeping control characters in texts", only=(True,)),
    Fields("wordpieces_prefix", "another prefix of the pieces inside a word", only=("##",)),
    *(
        Fields(f"{name.lower()}_token", "other special tokens", only=(f"[{name}]",))
        for name in ("UNK", "SEP", "PAD", "CLS", "MASK")
    ),
    Fields(
        "added_tokens_decoder additional_special_tokens extra_special_tokens",
        "added tokens with a vocab.txt; a tokenizer.json may have them",
        only=([], {}),
    ),
    Fields("truncation_side", "cutting long texts at the start", only=("right",)),
    Fields(
        "model_input_names",
        "pairs of texts without token_type_ids",
        only=(["input_ids", "token_type_ids", "attention_mask"],),
    ),
    Fields(
        "max_len max_length padding_side pad_to_multiple_of pad_token_type_id padding stride "
        "truncation_strategy",
        "defaults of calls; padding never changes a result here, and the call has `max_length`",
    ),
    Fields("never_split", "transformers' tokenizers in Rust do not read it either"),
    Fields("bos_token eos_token", "BERT has none"),
    Fields("split_special_tokens", "special tokens in a text are always plain text here"),
    Fields("clean_up_tokenization_spaces", "only for turning ids into text"),
    Fields(
        "backend from_slow is_local local_files_only name_or_path processor_class "
        "special_tokens_map_file tokenizer_file transformers_version use_fast vocab_file",
        "origin and use of the file",
    ),
)

# sentence_bert_config.json of sentence-transformers.
SENTENCE_BERT = (
    Fields("max_seq_length", "the maximum number of tokens", used=True),
    Fields("do_lower_case", "lowercases texts before the tokenizer", used=True),
    Fields("transformer_task", "another task", only=("feature-extraction",)),
    Fields("module_output_name", "another output", only=("token_embeddings",)),
    Fields(
        "modality_config",
        "inputs other than texts, or another output",
        only=({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
    ),
    Fields(
        "config_args model_args processing_kwargs tokenizer_args",
        "arguments that change the model or its tokenizer",
        only=({},),
    ),
)

# The config.json of a Pooling of sentence-transformers.
POOLING = (
    Fields(
        "pooling_mode pooling_mode_mean_tokens pooling_mode_cls_token pooling_mode_pooler",
        "mean or cls, exactly one; the last is a field of this library",
        used=True,
    ),
    Fields(
        "pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens "
        "pooling_mode_weightedmean_tokens pooling_mode_lasttoken",
        "other kinds of pooling",
        only=(False,),
    ),
    Fields("include_prompt", "leaving out the tokens of a prompt", only=(True,)),
    Fields("embedding_dimension word_embedding_dimension", "the weights have this width"),
)


def check_fields(content, table, path, ignored_fields=()):
    """Refuse fields that change, or may change, what a model computes."""
    rows = {name: fields for fields in table for name in fields.names.split()}
    given = {name: value for name, value in content.items() if value is not None}
    unknown = sorted(given.keys() - rows.keys() - set(ignored_fields))
    if unknown:
        raise ArgumentError(
            ", ".join(unknown),
            f"only known fields in {path}, since others may change the result",
            ", ".join(reprlib.repr(given[name]) for name in unknown),
            "What changes nothing can be deleted there, or named in ignored_fields.",
        )
    for name in sorted(given.keys() & rows.keys()):
        only, value = rows[name].only, given[name]
        if only is not None and not any(type(value) is type(o) and value == o for o in only):
            raise ArgumentError(
                name,
                f"{' or '.join(map(reprlib.repr, only or (None,)))} in {path}",
                reprlib.repr(value),
                f"Not supported: {rows[name].why}.",
            )


def read_json(path, kind=dict):
    """Read a JSON file."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError("path", "a JSON file", f"no file {path}")
    expected = {dict: "object", list: "array"}[kind]
    try:
        content = parse_json(path.read_bytes())
        if not isinstance(content, kind):
            raise ValueError(f"a {type(content).__name__}")
    except ValueError as error:
        raise ArgumentError("path", f"a JSON {expected} in {path}", error) from error
    return content


_FIELDS = {field.name for field in dataclasses.fields(BertConfig)} - {"labels"}
# For models without a Hugging Face class, so that `transformers` rejects them.
_OWN = "tf_transformer_bert"
_MODEL_TYPES = ("bert", "albert", _OWN)
_ARCHITECTURE = "architecture"  # a key of our own files
_PRUNED = "pruned_heads"  # of Hugging Face: layer -> numbers of the heads that are gone
_NEEDED = {
    "bert": ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    "albert": ("vocab_size", "hidden_size", "embedding_size", "num_hidden_groups", "hidden_act"),
}
_MOST_LABELS = 100_000  # without names
_OTHER_NAMES = {"classifier_dropout_prob": "classifier_dropout"}  # ALBERT's
# What a cross-encoder of sentence-transformers applies to its logits -> `problem_type`, for one
# class and for several; None is Hugging Face's default for their number.
_ON_LOGITS = {
    "torch.nn.modules.linear.Identity": ("regression", None),
    "torch.nn.modules.activation.Sigmoid": (None, "multi_label_classification"),
}


def read_config(path, *, ignored_fields=(), **changes):
    """Read the configuration of a BERT or an ALBERT.

    Uses the fields of `BertConfig` by name, and `id2label` for `labels`. The table `CONFIG` has the
    others: they change nothing here, have a supported value, or are refused. `read_architecture`
    reads an `architecture`.

    Args:
        path: str or Path, the file.
        ignored_fields: collection of str, fields that are unknown here and change nothing.
        changes: fields of `BertConfig` that override the file.

    Returns:
        `BertConfig`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not JSON, describes another kind of model, or has an unknown
            field or an unsupported or invalid value, see `BertConfig`.

    Example:
        >>> import json, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "config.json")
        >>> with open(path, "w") as file:
        ...     json.dump(config_file(BertConfig(hidden_size=24), "BertModel"), file)
        >>> read_config(path).hidden_size
        24
    """
    path = Path(path)
    content = read_json(path)
    model_type = content.get("model_type", "albert" if "num_hidden_groups" in content else "bert")
    if model_type not in _MODEL_TYPES:
        raise ArgumentError(
            "model_type", f"one of {', '.join(_MODEL_TYPES)} in {path}", f"{model_type!r}"
        )
    check_fields(content, CONFIG, path, ignored_fields)
    content = {_OTHER_NAMES.get(key, key): value for key, value in content.items()}
    fields = {name: value for name, value in content.items() if name in _FIELDS}
    fields["labels"] = _labels(content, path)
    if fields.get("problem_type") is None and "problem_type" not in changes:
        labels = changes.get("labels", fields["labels"]) or ()
        fields["problem_type"] = _problem_type(content, len(labels), path)
    if (
        "model_type" not in content
        and model_type == "albert"
        and fields.get("hidden_act") == "gelu"
    ):
        fields["hidden_act"] = "gelu_new"  # what Google's ALBERT code computes for this name
    missing = [name for name in _NEEDED.get(model_type, ()) if name not in fields]
    if missing:
        raise ArgumentError("path", f"{', '.join(missing)} in {path}", f"only {', '.join(content)}")
    config = BertConfig(**{**fields, **changes})
    pruned = content.get(_PRUNED)
    return _without_heads(config, pruned, path) if pruned else config


def read_architecture(path):
    """Read the architecture that `config_file` wrote."""
    choice = read_json(Path(path)).get(_ARCHITECTURE)
    if choice is None:
        return None
    if not isinstance(choice, dict):
        raise ArgumentError("architecture", f"a dict in {path}", f"{choice!r}")
    return Architecture.from_dict(choice)


def config_file(config, model_name, architecture=None):
    """Create the content of `config.json`, readable here and by Hugging Face."""
    fields = {name: value for name, value in config.to_dict().items() if value is not None}
    labels = fields.pop("labels")
    if config.pooler_activation in ("tanh", None):
        fields.pop("pooler_activation", None)  # readers assume it, or infer it from the weights
    if labels:
        fields["id2label"] = {str(n): label for n, label in enumerate(labels)}
        fields["label2id"] = {label: n for n, label in enumerate(labels)}
    model_type = model_type_of(config, architecture)
    own = config.embedding_size is not None or config.num_hidden_groups is not None
    if config.layer_sizes and model_type == "bert":
        pruned = _pruned_heads(config)
        own = own or pruned is None
        if not own:
            fields[_PRUNED] = pruned
            del fields["layer_sizes"]
    elif config.layer_sizes:
        model_type = _OWN
    if "pooler_activation" in fields or (own and model_type == "bert"):
        model_type = _OWN
    if model_type == "albert":
        # Hugging Face has no ALBERT with only the sentence order head.
        model_name = model_name.replace("BertForNextSentencePrediction", "BertModel")
        model_name = model_name.replace("Bert", "Albert", 1)
    if architecture is not None:
        fields[_ARCHITECTURE] = architecture.to_dict()
    return {"architectures": [model_name], "model_type": model_type, **fields}


def model_type_of(config, architecture=None):
    """Return the `model_type` of a model's weight names: "bert", "albert" or its own."""
    if architecture is not None:
        return _OWN
    return "albert" if config.num_hidden_groups and config.embedding_size else "bert"


def _labels(content, path):
    names = content.get("id2label")
    if names is None:
        number = content.get("num_labels") or 0
        if not isinstance(number, int) or number > _MOST_LABELS:
            raise ArgumentError(
                "num_labels",
                f"an integer in {path}, at most {_MOST_LABELS:,} without id2label",
                f"{number!r}",
            )
        return tuple(f"LABEL_{n}" for n in range(number))
    try:
        return tuple(str(names[str(n)]) for n in range(len(names)))
    except (KeyError, TypeError) as error:
        raise ArgumentError(
            "id2label", f'a name for each of "0", "1", ... in {path}', f"{names!r}"
        ) from error


def _problem_type(content, labels, path):
    """The `problem_type` of a cross-encoder's file, or None."""
    newer = content.get("sentence_transformers") or {}
    name = newer.get("activation_fn") if isinstance(newer, dict) else newer
    name = name or content.get("sbert_ce_default_activation_function")
    if name is None:
        return None
    if name not in tuple(_ON_LOGITS):  # it may not be hashable
        raise ArgumentError(
            "sentence_transformers",
            f"an activation among {', '.join(_ON_LOGITS)} in {path}",
            f"{name!r}",
            "Write a problem_type instead.",
        )
    return _ON_LOGITS[name][labels != 1]  # without names there are two


def _without_heads(config, pruned, path):
    """A config with the numbers of heads that Hugging Face's `pruned_heads` leaves."""
    heads = config.num_attention_heads
    try:
        gone = [len(set(pruned.get(str(n), ()))) for n in range(config.num_groups)]
        sizes = [(heads - count, config.intermediate_size) for count in gone]
        return dataclasses.replace(config, layer_sizes=sizes)
    except (AttributeError, TypeError, ValueError):
        raise ArgumentError(
            _PRUNED,
            f'{{"0": [...], ...}} in {path}, fewer than {heads} heads of a layer',
            f"{pruned!r}",
        ) from None


def _pruned_heads(config):
    """Hugging Face's `pruned_heads`, or None if more than heads was pruned.

    It is no longer known which heads are gone; their number gives the shapes of the weights.
    """
    heads, units = zip(*config.layer_sizes, strict=True)
    if set(units) != {config.intermediate_size} or max(heads) > config.num_attention_heads:
        return None
    gone = {n: config.num_attention_heads - left for n, left in enumerate(heads)}
    return {str(n): list(range(count)) for n, count in gone.items() if count}
