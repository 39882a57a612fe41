"""The folder of an exported translator: its SavedModel, description and model card."""

import json
from pathlib import Path

import tensorflow as tf

from tf_transformer import __version__
from tf_transformer.data.files import replacing, write_json
from tf_transformer.errors import ArgumentError, MissingFileError, check
from tf_transformer.export.saving import load_saved_model
from tf_transformer.generation import Ensemble
from tf_transformer.json_text import check_format, parse_json
from tf_transformer.models import Transformer


class ExportedTokenizer(tf.Module):
    """The graph functions of a loaded tokenizer, with the properties that `Translator` reads."""

    def __init__(self, loaded, vocab_size):
        super().__init__(name="exported_tokenizer")
        self._loaded = loaded  # its tables are found, and saved again, through this attribute
        self.vocab_size = vocab_size  # a SavedModel keeps no Python attributes
        ids = {role: int(number) for role, number in loaded.special_ids().items()}
        self.pad_id, self.start_id, self.end_id = ids["pad"], ids["start"], ids["end"]
        # Attributes, so that a SavedModel has them under the same names.
        self.encode_strings, self.decode_ids = loaded.encode_strings, loaded.decode_ids
        self.pieces, self.special_ids = loaded.pieces, loaded.special_ids


def shipped_model(name):
    """Find a model that comes with the package: its name -> Path, FileNotFoundError for others.

    Example:
        >>> shipped_model("en-zh").name
        'en-zh'
    """
    package = Path(__file__).parents[2]
    # In a checkout or an editable install, the folder is next to the package.
    home = package if (package / "saved_models").is_dir() else package.parent
    path = home / "saved_models" / name
    if not path.is_dir():
        expected = "the name of a model included in tf_transformer"
        remedy = "Pass the folder of your own model with --model."
        raise MissingFileError(name, expected, "another name", remedy)
    return path


FORMAT = 1
DESCRIPTION = "translator.json"
_PICTURE = "attention.svg"
_REQUIRED = {"name", "source", "preset", "model", "scores", "command"}


def save_translator(translator, path, description, attention=None):
    """Export a translator with its description and its model card.

    Args:
        translator: `Translator`.
        path: str or Path of the folder; an exported translator there is replaced at the end.
        description: JSON-serializable dict: `name`, `source`, `preset`, `model` (the config),
            `pairs`, `weights`, `scores`, `command`; optionally `credit`, a sentence about further
            data, and `phrases`, dicts of `text`, `translation`, `accepted` (bool, whether a speaker
            would accept it) and `remark`.
        attention: None, or str, an SVG of attention weights for the model card.

    Raises:
        FileExistsError: If the folder has other content.

    Example:
        >>> path = "my-model"
        >>> save_translator(translator, path, description)  # doctest: +SKIP
    """
    description = {"format": FORMAT, "version": __version__, **description}
    with replacing(path, only_with=DESCRIPTION) as beside:
        translator.save(beside)
        write_json(beside / DESCRIPTION, description)
        card = model_card(description)
        if attention:
            (beside / _PICTURE).write_text(attention, encoding="utf-8")
            card += f"\n![What each head of the last decoder layer looked at]({_PICTURE})\n"
        (beside / "README.md").write_text(card, encoding="utf-8")


def read_description(path):
    """Read and check the description in the folder of an exported translator."""
    path = Path(path)
    file = path / DESCRIPTION
    if not (path / "saved_model.pb").is_file() or not file.is_file():
        expected = f"the folder of an exported translator (saved_model.pb and {DESCRIPTION})"
        got = "a folder without them" if path.is_dir() else "no folder"
        remedy = "Make one with: tf-transformer export RUN --output FOLDER"
        raise MissingFileError("path", expected, got, remedy, place=path)
    try:
        description = parse_json(file.read_bytes())
        check_format(description, FORMAT, "Export it again with this version.", path)
        missing = _REQUIRED - description.keys()
        if missing:
            expected, got = f"the fields {sorted(_REQUIRED)}", f"none of {sorted(missing)}"
            raise ArgumentError("file", expected, got, "Export it again.", place=file)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ArgumentError("file", "a description in JSON", f"{error!r}", place=file) from error
    return description


def read_attention(path):
    """The picture of an exported translator: str, an SVG, or None if it has none."""
    picture = Path(path) / _PICTURE
    return picture.read_text(encoding="utf-8") if picture.is_file() else None


def load_translator(path):
    """Load the SavedModel of a translator from its folder, a str or Path.

    Raises:
        FileNotFoundError: If the folder has no exported translator.
        ValueError: If another version exported it, or a file is damaged.

    Example:
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> sorted(translator.signatures)[:5]
        ['encode', 'serving_default', 'translate', 'translate_beam', 'translate_sample']
    """
    read_description(path)
    return load_saved_model(path)


def load_transformer(path):
    """Load the Keras model of an exported translator from its folder, to inspect, train or export.

    Returns:
        `(model, tokenizer)`: a `Transformer` with the exported weights, or the `Ensemble` that was
        exported, and an `ExportedTokenizer`. Pass both to `Translator` to change decoding settings.

    Raises:
        FileNotFoundError, ValueError: See `load_translator`; also if the weights are in int8, which
            cannot be trained or exported again.

    Example:
        >>> model, tokenizer = load_transformer(shipped_model("en-zh"))
        >>> model.get_config()["num_layers"]
        3
    """
    description = read_description(path)
    is_float = description.get("weights_dtype") != "int8"
    remedy = "Use what it was exported from; `load_translator` loads it to translate."
    check(is_float, "path", "a model with float weights", f"one in int8, {path}", remedy)
    saved = load_translator(path)
    config = description["model"]
    models = [Transformer.from_config(one) for one in config.get("models", [config])]
    for model in models:
        model.build()
    model = models[0] if len(models) == 1 else Ensemble(models)
    for weight, value in zip(model.weights, saved.weights, strict=True):
        weight.assign(tf.cast(value, weight.dtype))
    # The included model has a token for each row, and no number of them.
    num_tokens = getattr(saved, "num_tokens", config["input_vocab_size"])
    return model, ExportedTokenizer(saved.tokenizer, int(num_tokens))


_LICENSES = {
    "embedded": (
        "Trained on sentence pairs of [Tatoeba](https://tatoeba.org), collected by "
        "manythings.org/anki, CC-BY 2.0 France; the authors of every sentence are named in "
        "`tf_transformer/data/corpora/`. The weights are under Apache-2.0."
    ),
    "own": "Trained on the user's own files; their license applies.",
}


def model_card(description):
    """The Markdown of a translator's card from its description, see `save_translator`."""
    source = {key: value for key, value in description["source"].items() if value}
    preset = dict(description["preset"])
    parts = preset.pop("architecture", None)
    parts = f"`{json.dumps(parts)}`" if parts else "the paper's"
    preset = ", ".join(f"{key} {value}" for key, value in preset.items())
    pairs = ", ".join(f"{key} {value:,}" for key, value in description["pairs"].items())
    license = _LICENSES["embedded" if "corpus" in source else "own"]
    license = f"{license} {description.get('credit', '')}".strip()
    scores = description["scores"]
    # A bar would end the table cell.
    bleu, chrf = (scores[f"{name}_signature"].replace("|", r"\|") for name in ("bleu", "chrf"))
    return f"""# {description["name"]}

A Transformer translator as a TensorFlow SavedModel: strings in, strings out. It needs
only TensorFlow.

```python
import tensorflow as tf

model = tf.saved_model.load("{description["name"]}")
model.translate(tf.constant(["..."]))
```

| | |
|---|---|
| data | {", ".join(f"{key} {value}" for key, value in source.items())} |
| sentence pairs | {pairs} |
| license | {license} |
| weights | {description["weights"]:,} ({description.get("weights_dtype", "float32")}) |
| sizes | {preset} |
| architecture | {parts} |
| BLEU on the whole test split | {scores["bleu"]} ({bleu}) |
| chrF | {scores["chrf"]} ({chrf}) |
| test sentences | {scores["sentences"]:,} |
| made by | tf_transformer {description["version"]}, `{description["command"]}` |

Signatures: `translate` and `serving_default` (`text` string -> `translation` string),
greedy decoding; `translate_beam` (`text` -> `translations`, `scores`); `translate_sample`
(`text`, `seed`, `temperature`, `top_k`, `top_p` -> `translation`); `encode` (`text` ->
`ids`, `vectors`); `warm_up` and `warm_up_beam` (`rows`, `length` -> `programs`), which
compile small batches of these sizes with XLA. A source longer than the model's position
table is truncated; unknown characters are read byte by byte.

It was trained on the sentences above; expect poor translations of other kinds of text, and do not
rely on it where mistakes are costly.
{_judged(description.get("phrases", []))}"""


def _judged(phrases):
    """Return a section with phrases and a reader's judgment of their translations."""
    if not phrases:
        return ""
    rows = "\n".join(
        f"| {one['text']} | {one['translation']} | {'yes' if one['accepted'] else 'no'} "
        f"| {one['remark']} |"
        for one in phrases
    )
    accepted = sum(one["accepted"] for one in phrases)
    return f"""
## Everyday phrases

These phrases were chosen before training, translated with greedy decoding, and judged by
a reader. A speaker would accept {accepted} of {len(phrases)} translations.

| text | translation | acceptable | remark |
|---|---|---|---|
{rows}
"""
