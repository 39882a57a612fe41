"""Configuration files of checkpoints: what each field means here, reading and writing.

The tables of docs/checkpoint_fields.md are the same.
"""

import dataclasses
import json
import os
import reprlib  # short, whatever a file contains
from pathlib import Path
from typing import NamedTuple

from tf_transformer.errors import ArgumentError, MissingFileError, check
from tf_transformer.json_text import parse_json
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.bert.bert_config import FAMILIES, BertConfig


class Fields(NamedTuple):
    """Fields with one meaning."""

    names: str  # separated by spaces
    verdict: str  # "used", "harmless" or "only"
    only: tuple | None  # the values that are understood; null means the default
    why: str  # what they are used for, or why they change nothing here, or what is not supported


def read_table(text):
    """Read rows of names | used, harmless or the JSON list of values that are understood | why."""
    rows = []
    for row in text.strip().replace("\n    ", " ").splitlines():
        names, verdict, why = row.split(" | ")
        only = tuple(json.loads(verdict)) if verdict.startswith("[") else None
        rows.append(Fields(names, verdict if only is None else "only", only, why))
    return tuple(rows)


# Hugging Face's config.json, transformers 2 to 5, and Google's bert_config.json and
# albert_config.json.
CONFIG = read_table("""
vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size
    max_position_embeddings type_vocab_size embedding_size num_hidden_groups |
    used | sizes; compared with the shapes of the weights
hidden_act | used | the names of transformers, except `prelu`, `sqrtsoftplus` and `xielu`
layer_norm_eps initializer_range | used | as named
hidden_dropout_prob attention_probs_dropout_prob classifier_dropout classifier_dropout_prob |
    used | rates in training; the last is ALBERT's name for the third
id2label num_labels | used | names of the classes; `num_labels` is only used without `id2label`
problem_type | used | how a text classifier turns logits into answers
sentence_transformers sbert_ce_default_activation_function |
    used | how a cross-encoder turns logits into answers, if there is no `problem_type`
tie_word_embeddings | used | false is refused by models that predict words, since their output layer
    is the table of word embeddings; other models have no such layer
pruned_heads | used | how many heads are left in each layer
model_type architectures | used | the kind of model
architecture layer_sizes pooler_activation family qa_dropout | used | fields of this library
position_embedding_type | ["absolute"] | relative positions inside attention
is_decoder add_cross_attention is_encoder_decoder |
    [false] | decoders, in which tokens do not attend to later tokens
inner_group_num | [1] | ALBERT with several layers in a group
layers_to_keep | [[]] | only some of the layers
quantization_config | [] | weights in another format
auto_map | [] | models with their own code
per_layer_config | [] | layers that differ from each other
directionality | ["bidi"] | attention in one direction
pooler_type | ["first_token_transform"] | other poolers
ln_type | ["postln"] | layer normalization in another place
chunk_size_feed_forward gradient_checkpointing torchscript use_cache use_bfloat16 output_past
    tf_legacy_loss xla_device |
    harmless | they change memory and time, or the form of the result, in other programs
_attn_implementation _attn_implementation_autoset _attn_implementation_internal
    _experts_implementation_internal attn_implementation _flash_attn_2_enabled |
    harmless | ways to compute the same attention
dtype torch_dtype | harmless | weights of any float type are read and kept in float32
output_attentions output_hidden_states return_dict tie_last_hidden_states |
    harmless | the call decides what is returned
pad_token_id |
    harmless | `attention_mask` marks the padding; the tokenizer defines the padding token
bos_token_id eos_token_id eos_token_ids sep_token_id cls_token_id unk_token_id mask_token_id |
    harmless | the tokenizer's files define the special tokens
tokenizer_class do_lower_case |
    harmless | the tokenizer's files define how texts are split into tokens
label2id _num_labels label_names | harmless | `id2label` has the names and their number
cross_attention_hidden_size tie_encoder_decoder decoder_start_token_id |
    harmless | only for decoders, which are refused
assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens
    diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty
    forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
    no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups
    num_beams num_return_sequences output_scores prefix remove_invalid_values repetition_penalty
    return_dict_in_generate suppress_tokens target_lookbehind task_specific_params temperature top_k
    top_p typical_p | harmless | only for text generation with transformers
summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    summary_last_dropout | harmless | for other kinds of models, and for ELECTRA's choice among
    several texts, which is not supported
pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    down_scale_factor gap_size net_structure_type num_memory_blocks |
    harmless | Google's own code does not read them
cell emb_size pre_trained structure training |
    harmless | left in the files of TinyBERT and rubert-tiny; no code reads them
_commit_hash _name_or_path finetuning_task language name name_or_path net_type
    transformers.js_config transformers_version | harmless | origin and use of the file
""")

# What differs in the config.json of BERT's relatives, by `model_type`.
_ROBERTA = read_table("""
pad_token_id | used | ids that equal it are padding; positions of tokens are counted from the next
    number
embedding_size num_hidden_groups inner_group_num | [] | fields of ALBERT
""")
RELATIVES = {
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "distilbert": read_table("""
dim n_layers n_heads hidden_dim | used | sizes; compared with the shapes of the weights
activation | used | as `hidden_act` of BERT
dropout attention_dropout seq_classif_dropout qa_dropout |
    used | rates in training: of layers, of attention weights, before a text classifier, before
    answers to questions
sinusoidal_pos_embds | harmless | the weights contain the table of positions, whatever it began as
tie_weights_ | harmless | no code reads it
layer_norm_eps | [1e-12] | another number; DistilBERT's is fixed
hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act hidden_dropout_prob
    attention_probs_dropout_prob classifier_dropout classifier_dropout_prob type_vocab_size
    embedding_size num_hidden_groups inner_group_num | [] | fields of BERT and ALBERT
"""),
    "electra": read_table("""
num_hidden_groups inner_group_num | [] | fields of ALBERT
generator_size | harmless | how large the generator was that the discriminator was trained with
"""),
}

_ANY_TOKENIZER = read_table("""
auto_map | [] | tokenizers with their own code
truncation_side | ["right"] | cutting long texts at the start
max_len max_length padding_side pad_to_multiple_of pad_token_type_id padding stride
    truncation_strategy |
    harmless | defaults of calls; padding never changes a result here, and the call has `max_length`
split_special_tokens | harmless | special tokens in a text are always plain text here
backend from_slow is_local local_files_only name_or_path processor_class special_tokens_map_file
    tokenizer_file transformers_version use_fast vocab_file | harmless | origin and use of the file
""")
# tokenizer_config.json next to a vocab.txt.
TOKENIZER = (
    read_table("""
do_lower_case strip_accents tokenize_chinese_chars |
    used | how text is normalized; must agree with a tokenizer.json
model_max_length | used | the maximum number of tokens of a sentence encoder whose
    sentence_bert_config.json has none
tokenizer_class | ["BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer",
    "DistilBertTokenizerFast", "ElectraTokenizer", "ElectraTokenizerFast"] |
    other tokenizers, with a vocab.txt
do_basic_tokenize | [true] | splitting texts only at spaces
clean_text | [true] | keeping control characters in texts
wordpieces_prefix | ["##"] | another prefix of the pieces inside a word
unk_token | ["[UNK]"] | other special tokens
sep_token | ["[SEP]"] | other special tokens
pad_token | ["[PAD]"] | other special tokens
cls_token | ["[CLS]"] | other special tokens
mask_token | ["[MASK]"] | other special tokens
added_tokens_decoder additional_special_tokens extra_special_tokens |
    [[], {}] | added tokens with a vocab.txt; a tokenizer.json may have them
model_input_names |
    [["input_ids", "token_type_ids", "attention_mask"]] | pairs of texts without token_type_ids,
    except for DistilBERT
never_split | harmless | transformers' tokenizers in Rust do not read it either
bos_token eos_token | harmless | BERT has none
clean_up_tokenization_spaces | harmless | only for turning ids into text
""")
    + _ANY_TOKENIZER
)

# tokenizer_config.json next to ALBERT's spiece.model.
ALBERT_TOKENIZER = (
    read_table("""
do_lower_case keep_accents | used | how text is normalized
model_max_length | used | as for BERT
tokenizer_class | ["AlbertTokenizer", "AlbertTokenizerFast"] | other tokenizers
remove_space | [true] | keeping several spaces
unk_token | ["<unk>"] | other special tokens
sep_token | ["[SEP]"] | other special tokens
pad_token | ["<pad>"] | other special tokens
cls_token | ["[CLS]"] | other special tokens
mask_token | ["[MASK]"] | other special tokens
sp_model_kwargs additional_special_tokens extra_special_tokens |
    [[], {}] | drawing segmentations at random; added tokens
bos_token eos_token | harmless | they are not added to a text
add_prefix_space trim_offsets clean_up_tokenization_spaces |
    harmless | the model has the first, the others are not for ids
""")
    + _ANY_TOKENIZER
)

# tokenizer_config.json next to Llama's or Mistral's tokenizer.model.
LLAMA_TOKENIZER = (
    read_table("""
add_bos_token add_eos_token | used | whether `<s>` comes before a text, by default yes, and `</s>`
    after it, by default no
legacy | used | false: after a special token that is parsed, a text begins without a space
added_tokens_decoder | used | further tokens, with ids that follow those of the model
tokenizer_class | ["LlamaTokenizer", "LlamaTokenizerFast"] | other tokenizers
unk_token | ["<unk>"] | other special tokens
bos_token | ["<s>"] | other special tokens
eos_token | ["</s>"] | other special tokens
add_prefix_space | [true] | texts that do not begin with a space
clean_up_tokenization_spaces | [false] | texts with other spaces
sp_model_kwargs | [{}] | drawing segmentations at random
additional_special_tokens extra_special_tokens |
    harmless | `added_tokens_decoder` has their ids
pad_token | harmless | padding never changes a result here
chat_template use_default_system_prompt | harmless | for prompts, see `ChatTemplate`
model_max_length spaces_between_special_tokens |
    harmless | the model has its length; special tokens are left out of texts
""")
    + _ANY_TOKENIZER
)

# sentence_bert_config.json of sentence-transformers.
SENTENCE_BERT = read_table("""
max_seq_length | used | the maximum number of tokens
do_lower_case | used | lowercases texts before the tokenizer
transformer_task | ["feature-extraction"] | another task
module_output_name | ["token_embeddings"] | another output
modality_config | [{"text": {"method": "forward", "method_output_name": "last_hidden_state"}}] |
    inputs other than texts, or another output
config_args model_args processing_kwargs tokenizer_args |
    [{}] | arguments that change the model or its tokenizer
""")

# The config.json of a Pooling of sentence-transformers.
POOLING = read_table("""
pooling_mode pooling_mode_mean_tokens pooling_mode_cls_token pooling_mode_lasttoken
    pooling_mode_pooler | used | one of these kinds; the last is a field of this library
pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens |
    [false] | other kinds of pooling
include_prompt | [true] | leaving out the tokens of a prompt
embedding_dimension word_embedding_dimension | harmless | the weights have this width
""")

# The config.json of a Dense of sentence-transformers.
DENSE = read_table("""
in_features out_features bias activation_function |
    used | its size, and what follows it: nothing or tanh
module_input_name module_output_name | ["sentence_embedding"] | layers on tokens
""")


def check_fields(content, table, path, ignored_fields=()):
    """Refuse fields that may change what a model computes."""
    rows = {name: fields for fields in table for name in fields.names.split()}
    given = {name: value for name, value in content.items() if value is not None}
    unknown = sorted(given.keys() - rows.keys() - set(ignored_fields))
    expected = f"only known fields in {path}, since others may change the result"
    got = ", ".join(reprlib.repr(given[name]) for name in unknown)
    remedy = "What changes nothing can be deleted there, or named in ignored_fields."
    check(not unknown, ", ".join(unknown), expected, got, remedy)
    for name in sorted(given.keys() & rows.keys()):
        only, value = rows[name].only, given[name]
        if only is not None and not any(type(value) is type(o) and value == o for o in only):
            expected = f"{' or '.join(map(reprlib.repr, only or (None,)))} in {path}"
            got = reprlib.repr(value)
            raise ArgumentError(name, expected, got, f"Not supported: {rows[name].why}.")


def read_json(path, kind=dict, default=None):
    """Read a JSON file; a missing one stands for the `default`, if there is one."""
    path = Path(path)
    if not os.path.isfile(path):  # `is_file` raises an error for a name that is too long
        if default is not None:
            return default
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
OWN = "tf_transformer_bert"
_MODEL_TYPES = ("bert", "albert", *RELATIVES, OWN)
_PRUNED = "pruned_heads"  # of Hugging Face: layer -> numbers of the heads that are gone
_NEEDED = {
    "bert": ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    "albert": ("vocab_size", "hidden_size", "embedding_size", "num_hidden_groups", "hidden_act"),
}
_NEEDED["roberta"] = _NEEDED["xlm-roberta"] = _NEEDED["bert"]
_NEEDED["distilbert"] = (*_NEEDED["bert"], "intermediate_size")
_NEEDED["electra"] = (*_NEEDED["distilbert"], "embedding_size")
_MOST_LABELS = 100_000  # without names
_OTHER_NAMES = {"classifier_dropout_prob": "classifier_dropout"}  # ALBERT's
_DISTILBERT_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "seq_classif_dropout": "classifier_dropout",
}
# What a cross-encoder of sentence-transformers applies to its logits -> `problem_type`, for one
# class and for several; None is Hugging Face's default for their number.
_ON_LOGITS = {
    "torch.nn.modules.linear.Identity": ("regression", None),
    "torch.nn.modules.activation.Sigmoid": (None, "multi_label_classification"),
}


def read_config(path, *, ignored_fields=(), **changes):
    """Read the configuration of a BERT, an ALBERT or another relative of BERT, a `BertConfig`.

    `id2label` gives the `labels`; docs/checkpoint_fields.md has the other fields.

    Args:
        path: str or Path, the file.
        ignored_fields: collection of str, fields that are unknown here and change nothing.
        changes: fields of `BertConfig` that override the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not JSON, describes another kind of model, or has an unknown
            field or a value that is not supported.

    Example:
        >>> content = config_file(BertConfig(hidden_size=24), "BertModel")
        >>> _ = Path("config.json").write_text(json.dumps(content))
        >>> read_config("config.json").hidden_size
        24
    """
    file = read_json(path)
    model_type = file.get("model_type", "albert" if "num_hidden_groups" in file else "bert")
    expected = f"one of {', '.join(_MODEL_TYPES)} in {path}"
    check(model_type in _MODEL_TYPES, "model_type", expected, f"{model_type!r}")
    check_fields(file, (*CONFIG, *RELATIVES.get(model_type, ())), path, ignored_fields)
    names = _DISTILBERT_NAMES if model_type == "distilbert" else _OTHER_NAMES
    content = {names.get(key, key): value for key, value in file.items()}
    fields = {name: value for name, value in content.items() if name in _FIELDS}
    if model_type in RELATIVES:
        fields["family"] = model_type
    if model_type == "electra" and fields.get("embedding_size") == fields.get("hidden_size"):
        fields["embedding_size"] = None  # embeddings as wide as the layers are not mapped
    counted = [name for name, family in FAMILIES.items() if family.pad_token_id is not None]
    if fields.get("family") not in counted:
        fields.pop("pad_token_id", None)  # only the tokenizer's
    fields["labels"] = labels_of(content, path)
    if fields.get("problem_type") is None and "problem_type" not in changes:
        labels = changes.get("labels", fields["labels"]) or ()
        fields["problem_type"] = _problem_type(content, len(labels), path)
    by_google = "model_type" not in content and model_type == "albert"
    if by_google and fields.get("hidden_act") == "gelu":
        fields["hidden_act"] = "gelu_new"  # what Google's ALBERT code computes for this name
    missing = [name for name in _NEEDED.get(model_type, ()) if name not in fields]
    theirs = {name: key for key, name in names.items()}
    expected = ", ".join(theirs.get(name, name) for name in missing)
    check(not missing, "path", f"{expected} in {path}", f"only {', '.join(file)}")
    config = BertConfig(**{**fields, **changes})
    pruned = content.get(_PRUNED)
    return _without_heads(config, pruned, path) if pruned else config


def read_architecture(path):
    """Read the architecture that `config_file` wrote."""
    choice = read_json(path).get("architecture")
    check(isinstance(choice, dict | None), "architecture", f"a dict in {path}", f"{choice!r}")
    return None if choice is None else Architecture.from_dict(choice)


def config_file(config, model_name, architecture=None):
    """Create the content of `config.json`, readable here and by Hugging Face."""
    fields = {name: value for name, value in config.to_dict().items() if value is not None}
    labels = fields.pop("labels")
    if config.pooler_activation in ("tanh", None):
        fields.pop("pooler_activation", None)  # readers assume it, or infer it from the weights
    fields |= label_fields(labels) if labels else {}
    model_type = model_type_of(config, architecture)
    groups, width = config.num_hidden_groups, config.embedding_size
    if model_type == "electra":
        is_published = not groups and width != config.hidden_size
    elif model_type == "distilbert":
        is_published = not (groups or width) and config.layer_norm_eps == 1e-12
    else:
        is_published = model_type == "albert" or not (groups or width)
    model_type = model_type if is_published else OWN
    is_pruned = config.layer_sizes and model_type not in ("albert", OWN)
    pruned = _pruned_heads(config) if is_pruned else None
    if pruned is not None:
        fields[_PRUNED] = pruned
        del fields["layer_sizes"]
    if "pooler_activation" in fields or "layer_sizes" in fields:
        model_type = OWN
    if model_type in RELATIVES:
        del fields["family"]
        model_name = model_name.replace("Bert", config.traits.prefix, 1)
    if model_type == "electra":
        fields["embedding_size"] = config.embedding_width
    if model_type == "distilbert":
        del fields["type_vocab_size"], fields["layer_norm_eps"]
        there = {ours: theirs for theirs, ours in _DISTILBERT_NAMES.items()}
        fields = {there.get(name, name): value for name, value in fields.items()}
    if model_type == "albert":
        # Hugging Face has no ALBERT with only the sentence order head.
        model_name = model_name.replace("BertForNextSentencePrediction", "BertModel")
        model_name = model_name.replace("Bert", "Albert", 1)
    if architecture is not None:
        fields["architecture"] = architecture.to_dict()
    return {"architectures": [model_name], "model_type": model_type, **fields}


def model_type_of(config, architecture=None):
    """Return the `model_type` of a model's weight names: Hugging Face's or its own."""
    if architecture is not None:
        return OWN
    if config.family is not None:
        return config.family
    return "albert" if config.num_hidden_groups and config.embedding_size else "bert"


def label_fields(labels):
    """The fields with the names of the classes."""
    ids = {label: n for n, label in enumerate(labels)}
    return {"id2label": {str(n): label for label, n in ids.items()}, "label2id": ids}


def labels_of(content, path):
    """The names of the classes in a `config.json`; () if there are none."""
    names = content.get("id2label")
    if names is None:
        number = content.get("num_labels") or 0
        if not isinstance(number, int) or number > _MOST_LABELS:
            expected = f"an integer in {path}, at most {_MOST_LABELS:,} without id2label"
            raise ArgumentError("num_labels", expected, f"{number!r}")
        return tuple(f"LABEL_{n}" for n in range(number))
    try:
        return tuple(str(names[str(n)]) for n in range(len(names)))
    except (KeyError, TypeError) as error:
        expected = f'a name for each of "0", "1", ... in {path}'
        raise ArgumentError("id2label", expected, f"{names!r}") from error


def _problem_type(content, labels, path):
    """The `problem_type` of a cross-encoder's file, or None."""
    newer = content.get("sentence_transformers") or {}
    name = newer.get("activation_fn") if isinstance(newer, dict) else newer
    name = name or content.get("sbert_ce_default_activation_function")
    if name is None:
        return None
    if name not in tuple(_ON_LOGITS):  # it may not be hashable
        expected = f"an activation among {', '.join(_ON_LOGITS)} in {path}"
        got = f"{name!r}"
        raise ArgumentError("sentence_transformers", expected, got, "Write a problem_type instead.")
    return _ON_LOGITS[name][labels != 1]  # without names there are two


def _without_heads(config, pruned, path):
    """A config with the numbers of heads that Hugging Face's `pruned_heads` leaves."""
    heads = config.num_attention_heads
    try:
        gone = [len(set(pruned.get(str(n), ()))) for n in range(config.num_groups)]
        sizes = [(heads - count, config.intermediate_size) for count in gone]
        return dataclasses.replace(config, layer_sizes=sizes)
    except (AttributeError, TypeError, ValueError):
        expected = f'{{"0": [...], ...}} in {path}, fewer than {heads} heads of a layer'
        raise ArgumentError(_PRUNED, expected, f"{pruned!r}") from None


def _pruned_heads(config):
    """Hugging Face's `pruned_heads`, or None if more than heads was pruned."""
    # It is no longer known which heads are gone; their number gives the shapes of the weights.
    heads, units = zip(*config.layer_sizes, strict=True)
    if set(units) != {config.intermediate_size} or max(heads) > config.num_attention_heads:
        return None
    gone = [config.num_attention_heads - left for left in heads]
    return {str(n): list(range(count)) for n, count in enumerate(gone) if count}
