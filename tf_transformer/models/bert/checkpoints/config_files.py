"""Configuration files of checkpoints, read and written."""

import dataclasses
from pathlib import Path

from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import parse_json
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.checkpoints.fields import CONFIG, check_fields


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
# What a cross-encoder of sentence-transformers makes of logits -> `problem_type`, for one class and
# for several; None is Hugging Face's default for their number.
_ON_LOGITS = {
    "torch.nn.modules.linear.Identity": ("regression", None),
    "torch.nn.modules.activation.Sigmoid": (None, "multi_label_classification"),
}


def read_config(path, *, ignored_fields=(), **changes):
    """Read the configuration of a BERT or an ALBERT.

    Uses the fields of `BertConfig` by name, and `id2label` for `labels`. What the others mean is in
    `checkpoints.fields`: they change nothing here, or have a supported value, or are refused. An
    `architecture` is left to `read_architecture`.

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
    """Return what names the weights of a model: "bert", "albert", or its own `model_type`."""
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
    """What a cross-encoder's file says of its logits, as a `problem_type` or None."""
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
