"""Translators of strings: saving and loading.

Axes: B batch, S source length, L maximum target length, D model width.
"""

import json
from pathlib import Path

import tensorflow as tf

from tf_transformer import __version__
from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.export.compile_for import warm_up_signature, warm_up_texts
from tf_transformer.export.loading import load_saved_model
from tf_transformer.export.saving import model_card, save_module
from tf_transformer.export.translation.id_translator import CHANCE, IdTranslator
from tf_transformer.generation import Ensemble
from tf_transformer.generation.decoding import IMPOSSIBLE
from tf_transformer.json_text import check_format, parse_json
from tf_transformer.models import Transformer
from tf_transformer.models.sizes import check_vocabulary


class ExportedTokenizer(tf.Module):
    """The graph functions of a loaded tokenizer, with the properties that `Translator` reads.

    A SavedModel keeps functions and variables, not Python attributes: the ids of the special tokens
    come from `special_ids`, the size of the vocabulary from the translator.
    """

    def __init__(self, loaded, vocab_size):
        super().__init__(name="exported_tokenizer")
        self._loaded = loaded  # its tables are found, and saved again, through this attribute
        self.vocab_size = vocab_size
        ids = {role: int(number) for role, number in loaded.special_ids().items()}
        self.pad_id, self.start_id, self.end_id = ids["pad"], ids["start"], ids["end"]
        # Attributes, so that a SavedModel has them under the same names.
        self.encode_strings, self.decode_ids = loaded.encode_strings, loaded.decode_ids
        self.pieces, self.special_ids = loaded.pieces, loaded.special_ids


_TEXTS = tf.TensorSpec((None,), tf.string, name="text")


class Translator(tf.Module):
    """A trained Transformer with its tokenizer, built from core TensorFlow operations.

    After `save`, it loads in a process that has only TensorFlow. Sources longer than the
    model's position table are truncated. A translation has at most twice as many tokens as the
    source, including its end token, plus 10, unless `length_limit` is set. A blank text gives an
    empty translation. `warm_up(rows, length)` compiles `translate` for small batches and
    `warm_up_beam` compiles `translate_beam`, see `BucketedFunction.warm_up`.

    Args:
        model: a built `Transformer` with a row for each token, or an `Ensemble` of such models,
            which has no `encode`. Ids of further rows are never chosen.
        tokenizer: a `GraphTokenizer` whose padding is the id 0, or an `ExportedTokenizer`.
        **decoding: `beam_size`, `length_penalty`, `n_best`, `min_length`, `no_repeat_ngram`,
            `length_limit`, `jit_compile` of `IdTranslator`.

    Raises:
        ValueError: If the tokenizer has more tokens than the model, its padding id is not 0, or a
            number is out of range.

    Example:
        >>> from tf_transformer import BPETokenizer, GraphBPE, Transformer
        >>> BPETokenizer.train(["hello world"], vocab_size=300).save("tokenizer.json")
        >>> tokenizer = GraphBPE.from_file("tokenizer.json")
        >>> size = tokenizer.vocab_size
        >>> model = Transformer(1, 8, 2, 16, size, size, pe_input=16, pe_target=16)
        >>> model.build()
        >>> translator = Translator(model, tokenizer)
        >>> translator.translate(tf.constant([""])).numpy().tolist()
        [b'']
    """

    def __init__(self, model, tokenizer, **decoding):
        super().__init__(name="translator")
        config = model.get_config()
        check_vocabulary(model, tokenizer)
        if tokenizer.pad_id != 0:
            raise ArgumentError(
                "tokenizer",
                "the id 0 for padding, which the masks block",
                tokenizer.pad_id,
                "Train a vocabulary with this package.",
            )
        self.tokenizer = tokenizer
        ends = tokenizer.start_id, tokenizer.end_id
        self.decoding = IdTranslator(model, *ends, num_tokens=tokenizer.vocab_size, **decoding)
        self.weights = self.decoding.weights
        # Variables: a SavedModel does not restore other attributes.
        self.settings = tf.Variable(self.decoding.settings, trainable=False)
        self.num_tokens = tf.Variable(tokenizer.vocab_size, trainable=False)
        encoder = getattr(model, "encoder", None)
        self._longest_source = config["pe_input"]
        # Not a decorator, which would keep only a weak reference: `Translator(...).translate()`.
        self.translate = tf.function(self.translate, input_signature=[_TEXTS], autograph=False)
        self.translate_beam = tf.function(
            self.translate_beam, input_signature=[_TEXTS], autograph=False
        )
        self.translate_sample = tf.function(
            self.translate_sample, input_signature=[_TEXTS, *CHANCE], autograph=False
        )
        self.warm_up, self.warm_up_beam = self.decoding.warm_up, self.decoding.warm_up_beam
        self.encode = None
        if encoder is not None:  # an ensemble has one for each model
            self._encoder_call = encoder.__call__  # the method alone: see `IdTranslator`
            self.encode = tf.function(self._encode, input_signature=[_TEXTS], autograph=False)

    def translate(self, text):
        """Translate greedily: string (B,) -> string (B,)."""
        source, lengths = self._source(text)
        translations = self.tokenizer.decode_ids(self.decoding.greedy(source))
        return tf.where(tf.equal(lengths, 1), "", translations)

    def translate_beam(self, text):
        """Translate with `beam_search`: string (B,) -> `translations` string (B, n), the best
        first, and their `scores` float32 (B, n); "" and -inf where there are fewer. A blank text
        has one translation, the empty one, with score 0.
        """
        source, lengths = self._source(text)
        ids, scores = self.decoding.beam(source)
        rows = tf.reshape(ids, (-1, tf.shape(ids)[2]))
        translations = tf.reshape(self.tokenizer.decode_ids(rows), tf.shape(scores))
        blank = tf.expand_dims(tf.equal(lengths, 1), 1)
        certain = tf.where(tf.range(tf.shape(scores)[1]) == 0, 0.0, IMPOSSIBLE)
        return {
            "translations": tf.where(blank, "", translations),
            "scores": tf.where(blank, certain, scores),
        }

    def translate_sample(self, text, seed, temperature, top_k, top_p):
        """Translate with `sample_decode`: string (B,) -> string (B,); see `IdTranslator.sample`."""
        source, lengths = self._source(text)
        ids = self.decoding.sample(source, seed, temperature, top_k, top_p)
        return tf.where(tf.equal(lengths, 1), "", self.tokenizer.decode_ids(ids))

    def _encode(self, text):
        """Run the encoder: string (B,) -> `ids` int32 (B, S), `vectors` float (B, S, D)."""
        source, _ = self._source(text)
        padding = tf.equal(source, 0)[:, tf.newaxis, tf.newaxis, :]
        vectors = self._encoder_call(source, training=False, mask=tf.logical_not(padding))
        return {"ids": source, "vectors": vectors}

    def _source(self, text):
        ids = self.tokenizer.encode_strings(text)[:, : self._longest_source - 1]
        ends = tf.fill((tf.shape(text)[0], 1), self.tokenizer.end_id)
        ids = tf.concat([ids, ends], axis=1)  # ragged (B, (S))
        return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32)

    def save(self, path):
        """Write a SavedModel with the signatures `serving_default`, `translate`, `translate_beam`,
        `translate_sample`, `warm_up`, `warm_up_beam` and, except for an ensemble, `encode`, and
        requests with which TensorFlow Serving warms it up.

        Args:
            path: str or Path of a folder; a SavedModel there is replaced at the end.

        Raises:
            FileExistsError: If the folder holds something else.
            OSError: If the disk is full or the folder cannot be written.
        """
        translate = tf.function(
            lambda text: {"translation": self.translate(text)}, input_signature=[_TEXTS]
        )
        sample = tf.function(
            lambda *inputs: {"translation": self.translate_sample(*inputs)},
            input_signature=[_TEXTS, *CHANCE],
        )
        signatures = {
            "serving_default": translate,
            "translate": translate,
            "translate_beam": self.translate_beam,
            "translate_sample": sample,
            "warm_up": warm_up_signature(self.warm_up),
            "warm_up_beam": warm_up_signature(self.warm_up_beam),
        }
        if self.encode is not None:
            signatures["encode"] = self.encode
        save_module(self, path, signatures, warm_up_texts(self._longest_source))


_PACKAGE = Path(__file__).parents[2]
_INSTALLED = _PACKAGE / "saved_models"
# In a checkout or an editable install, the folder is next to the package.
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "saved_models"


def shipped_model(name):
    """Find a model in `saved_models/`, in a checkout or in an installed package.

    Args:
        name: str, like "en-zh".

    Returns:
        Path of its folder.

    Raises:
        FileNotFoundError: If there is no such model.

    Example:
        >>> shipped_model("en-zh").name
        'en-zh'
    """
    path = _FOLDER / name
    if not path.is_dir():
        raise MissingFileError(
            name,
            "the name of a model included in tf_transformer",
            "another name",
            "Pass the folder of your own model with --model.",
        )
    return path


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
        FileExistsError: If the folder has other content.
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
    """Read and check the description in the folder of an exported translator."""
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
        check_format(description, FORMAT, "Export it again with this version.", path)
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
    """Load the Keras model of an exported translator: to inspect, train or export it again.

    Args:
        path: str or Path of the model's folder.

    Returns:
        `(model, tokenizer)`: a `Transformer` with the exported weights, or the `Ensemble` that was
        exported, and an `ExportedTokenizer`. Pass both to `Translator` to change decoding settings.

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
            "Use the run or the model that it was exported from; `load_translator` loads "
            "it to translate.",
        )
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
