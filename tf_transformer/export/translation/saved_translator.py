"""Writing, checking and loading the folders of exported translators."""

import json
from pathlib import Path

import tensorflow as tf

from tf_transformer import __version__
from tf_transformer.data.replacing import replacing
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.export.loading import load_saved_model
from tf_transformer.export.model_card import model_card
from tf_transformer.export.translation.exported_tokenizer import ExportedTokenizer
from tf_transformer.generation import Ensemble
from tf_transformer.json_text import parse_json
from tf_transformer.models import Transformer

FORMAT = 1
DESCRIPTION = "translator.json"
_PICTURE = "attention.svg"
_REQUIRED = {"name", "source", "preset", "model", "scores", "command"}


def save_translator(translator, path, description, attention=None):
    """Export a translator with its description and its model card.

    Args:
        translator: `Translator`.
        path: str or Path of the folder; an exported translator there is replaced.
        description: JSON-serializable dict: `name`, `source`, `preset`, `model` (the config),
            `weights`, `scores`, `command`; see `model_card`.
        attention: None, or str, an SVG of attention weights for the model card.

    Raises:
        FileExistsError: If the folder holds something else.
        OSError: If the folder cannot be written; its previous content is kept.

    Example:
        >>> from tf_transformer.export import Translator
        >>> save_translator(translator, "my-model", description)  # doctest: +SKIP
    """
    description = {"format": FORMAT, "version": __version__, **description}
    with replacing(path, only_with=DESCRIPTION) as beside:
        translator.save(beside)
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        (beside / DESCRIPTION).write_text(text, encoding="utf-8")
        card = model_card(description)
        if attention:
            (beside / _PICTURE).write_text(attention, encoding="utf-8")
            card += f"\n![What each head of the last decoder layer looked at]({_PICTURE})\n"
        (beside / "README.md").write_text(card, encoding="utf-8")


def read_description(path):
    """Read the description that `save_translator` wrote."""
    path = Path(path)
    file = path / DESCRIPTION
    if not (path / "saved_model.pb").is_file() or not file.is_file():
        raise MissingFileError(
            "path",
            f"the folder of an exported translator (saved_model.pb and {DESCRIPTION})",
            "a folder without them" if path.is_dir() else "no folder",
            "Make one with: tf-transformer export RUN --output FOLDER",
            place=path,
        )
    try:
        description = parse_json(file.read_bytes())
        if description["format"] != FORMAT:
            raise ArgumentError(
                "path",
                f"format {FORMAT}",
                f"{description['format']}, written by version {description['version']}",
                "Export it again with this version.",
                place=path,
            )
        missing = _REQUIRED - description.keys()
        if missing:
            raise ArgumentError(
                "file",
                f"the fields {sorted(_REQUIRED)}",
                f"none of {sorted(missing)}",
                "Export it again.",
                place=file,
            )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ArgumentError("file", "a description in JSON", f"{error!r}", place=file) from error
    return description


def read_attention(path):
    """The picture of an exported translator: str, an SVG, or None if it has none."""
    picture = Path(path) / _PICTURE
    return picture.read_text(encoding="utf-8") if picture.is_file() else None


def load_translator(path):
    """Load an exported translator.

    Args:
        path: str or Path of the model's folder.

    Returns:
        The loaded SavedModel: `.translate(strings)` returns strings.

    Raises:
        FileNotFoundError: See `read_description`.
        ValueError: See `read_description`; or if the SavedModel is damaged.

    Example:
        >>> from tf_transformer.export.translation.shipped_models import shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> sorted(translator.signatures)[:5]
        ['encode', 'serving_default', 'translate', 'translate_beam', 'translate_sample']
    """
    read_description(path)
    return load_saved_model(path)


def load_transformer(path):
    """Load the Keras model of an exported translator: to inspect, train or export it again.

    Args:
        path: str or Path of the model's folder.

    Returns:
        `(model, tokenizer)`: a `Transformer` with the exported weights, or the `Ensemble` that was
        exported, and an `ExportedTokenizer`. Both go into `Translator`, with other settings for
        decoding.

    Raises:
        FileNotFoundError, ValueError: See `load_translator`.
        ValueError: If the weights are in int8, which cannot be trained or exported again.

    Example:
        >>> from tf_transformer.export import Translator, shipped_model
        >>> model, tokenizer = load_transformer(shipped_model("en-zh"))
        >>> model.get_config()["num_layers"]
        3
        >>> translator = Translator(model, tokenizer, n_best=3)
        >>> translator.translate_beam(tf.constant(["Hello!"]))["scores"].shape.as_list()
        [1, 3]
    """
    description = read_description(path)
    if description.get("weights_dtype") == "int8":
        raise ArgumentError(
            "path",
            "a model with float weights",
            f"one in int8, {path}",
            (
                "Use the run or the model that it was exported from; `load_translator` loads "
                "it to translate."
            ),
        )
    saved = load_translator(path)
    config = description["model"]
    models = [Transformer.from_config(one) for one in config.get("models", [config])]
    for model in models:
        model.build()
    model = models[0] if len(models) == 1 else Ensemble(models)
    for weight, value in zip(model.weights, saved.weights, strict=True):
        weight.assign(tf.cast(value, weight.dtype))
    # Those of earlier versions had a token for each row.
    num_tokens = getattr(saved, "num_tokens", config["input_vocab_size"])
    return model, ExportedTokenizer(saved.tokenizer, int(num_tokens))
