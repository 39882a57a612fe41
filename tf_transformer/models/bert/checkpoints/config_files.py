"""Configuration files from other libraries: `bert_config.json` and Hugging Face's `config.json`."""

import dataclasses
import warnings
from pathlib import Path

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.checkpoints.json_file import read_json

_FIELDS = {field.name for field in dataclasses.fields(BertConfig)}
# Keys that would change the computation, and their supported values.
_ONLY = {
    "add_cross_attention": (False,),
    "inner_group_num": (1,),
    "is_encoder_decoder": (False,),
    "is_decoder": (False,),
    "position_embedding_type": ("absolute", None),
    "quantization_config": (None,),
    "tie_word_embeddings": (True,),
}
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
# Keys that do not affect it: origin of the file; training, generation and reporting elsewhere.
_IGNORED = """
    _attn_implementation _name_or_path _num_labels architectures attn_implementation
    bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward
    cross_attention_hidden_size decoder_start_token_id directionality diversity_penalty do_sample
    down_scale_factor dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    gap_size gradient_checkpointing id2label label2id label_names language length_penalty ln_type
    max_length min_length model_type net_structure_type net_type no_repeat_ngram_size
    num_beam_groups num_beams num_labels num_memory_blocks num_return_sequences output_attentions
    output_hidden_states output_past output_scores pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix
    problem_type remove_invalid_values repetition_penalty return_dict return_dict_in_generate
    sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript
    transformers_version typical_p use_bfloat16 use_cache
"""


def read_config(path, **changes):
    """Read the configuration of a BERT or an ALBERT.

    Uses the fields of `BertConfig` by name, and `id2label` for `labels`. Known keys that do not
    affect the computation are ignored; those that do must have a supported value. Unknown keys are
    listed in a warning. An `architecture` is left to `read_architecture`.

    Args:
        path: str or Path, the file.
        changes: fields of `BertConfig` that override the file.

    Returns:
        `BertConfig`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not JSON, describes another kind of model, or has an unsupported
            or invalid value, see `BertConfig`.

    Example:
        >>> import json, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "config.json")
        >>> with open(path, "w") as file:
        ...     json.dump(config_file(BertConfig(hidden_size=24), "BertModel"), file)
        >>> read_config(path).hidden_size
        24
    """
    path = Path(path)
    content = {_OTHER_NAMES.get(key, key): value for key, value in read_json(path).items()}
    model_type = content.get("model_type", "albert" if "num_hidden_groups" in content else "bert")
    if model_type not in _MODEL_TYPES:
        raise ArgumentError(
            "model_type", f"one of {', '.join(_MODEL_TYPES)} in {path}", f"{model_type!r}"
        )
    for key, allowed in _ONLY.items():
        if key in content and content[key] not in allowed:
            raise ArgumentError(
                key, f"{allowed[0]!r} in {path}, the only supported value", f"{content[key]!r}"
            )
    known = {*_FIELDS, *_IGNORED.split(), *_ONLY, _ARCHITECTURE, _PRUNED}
    unknown = sorted(set(content) - known)
    if unknown:
        warnings.warn(
            f"{path}: these keys are unknown and ignored: {', '.join(unknown)}.",
            stacklevel=2,
        )
    fields = {name: value for name, value in content.items() if name in _FIELDS}
    fields.setdefault("labels", _labels(content, path))
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
    """Read the architecture that `config_file` wrote.

    Args:
        path: str or Path, the file.

    Returns:
        `Architecture`, or None for that of BERT.

    Raises:
        ValueError: If the file has an unknown or invalid choice, see `Architecture.from_dict`.

    Example:
        >>> import json, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "config.json")
        >>> with open(path, "w") as file:
        ...     json.dump(config_file(BertConfig(), "BertModel", Architecture(window=3)), file)
        >>> read_architecture(path).window
        3
    """
    choice = read_json(Path(path)).get(_ARCHITECTURE)
    if choice is None:
        return None
    if not isinstance(choice, dict):
        raise ArgumentError("architecture", f"a dict in {path}", f"{choice!r}")
    return Architecture.from_dict(choice)


def config_file(config, model_name, architecture=None):
    """Create the content of `config.json`, readable here and by Hugging Face.

    Args:
        config: `BertConfig`.
        model_name: str, name of the class that reads the folder.
        architecture: None, or an `Architecture`, which Hugging Face's classes cannot read.

    Returns:
        JSON-serializable dict.

    Example:
        >>> config_file(BertConfig(), "BertModel")["model_type"]
        'bert'
    """
    fields = {name: value for name, value in config.to_dict().items() if value is not None}
    labels = fields.pop("labels")
    if config.pooler_activation in ("tanh", None):
        fields.pop("pooler_activation", None)  # readers assume it, or infer it from the weights
    if labels:
        fields["id2label"] = {str(n): label for n, label in enumerate(labels)}
        fields["label2id"] = {label: n for n, label in enumerate(labels)}
    model_type = architecture_of(config, architecture)
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


def architecture_of(config, architecture=None):
    """Return what names the weights of a model: "bert", "albert", or its own `model_type`.

    Args:
        config: `BertConfig`.
        architecture: None or `Architecture`.

    Example:
        >>> architecture_of(BertConfig(embedding_size=128, num_hidden_groups=1))
        'albert'
    """
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


def _without_heads(config, pruned, path):
    """A config with the numbers of heads that are left by Hugging Face's `pruned_heads`."""
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

    Which heads are gone is not known any more; their number gives the shapes of the weights.
    """
    heads, units = zip(*config.layer_sizes, strict=True)
    if set(units) != {config.intermediate_size} or max(heads) > config.num_attention_heads:
        return None
    gone = {n: config.num_attention_heads - left for n, left in enumerate(heads)}
    return {str(n): list(range(count)) for n, count in gone.items() if count}
