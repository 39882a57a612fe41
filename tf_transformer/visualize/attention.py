"""Pictures of attention, and the explorer: an HTML page with the attention of a model.

Axes: N heads, T queries (rows), S keys (columns), H head width.
"""

import base64
import hashlib
import json
import os
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.data.files import check_replaceable, replacing
from tf_transformer.errors import ArgumentError, MissingFileError, check, check_choice
from tf_transformer.export.translation.folder import DESCRIPTION, load_transformer
from tf_transformer.export.translation.translator import Translator
from tf_transformer.functional.attention.masks import padding_mask
from tf_transformer.functional.attention.scaled_dot_product import (
    RecordedAttention,
    recorded_attention,
)
from tf_transformer.models.base_model import check_vocabulary
from tf_transformer.models.bert.bert import Bert, PretrainedBert
from tf_transformer.models.bert.text_inputs import read_tokenizer, text_inputs
from tf_transformer.models.transformer import Transformer
from tf_transformer.tokenizers import GraphTokenizer
from tf_transformer.training import TrainingRun

_CELL = 24  # pixels, side of a square
_LETTER = 8  # pixels, approximate width of a narrow letter; wide ones (CJK) count twice
_GAP = 24  # pixels between two heads
_SLANT = 0.7  # sine of the angle of the column labels
_TITLE = 28  # pixels, height of the title line


def attention_svg(weights, queries, keys, titles=None):
    """Draw one matrix per head, with a row for each query and a column for each key.

    Darker squares are larger weights; hovering over a square shows the number. Returns a str, a
    complete SVG file, which `IPython.display.SVG` shows in a notebook.

    Args:
        weights: array or tensor (N, T, S), or (T, S) for a single matrix; numbers in [0, 1].
        queries: T strings, the labels of the rows.
        keys: S strings, the labels of the columns.
        titles: None for "head 1" and so on, or N strings shown above the matrices.

    Raises:
        ValueError: If `weights` has a different rank or values outside [0, 1], or if the number of
            labels or titles does not match its axis.

    Example:
        >>> picture = attention_svg([[0.25, 0.75]], ["车站"], ["the", "station"])
        >>> picture.startswith("<svg"), picture.count("<rect")  # a background, two squares
        (True, 3)
    """
    weights, titles = check_labels(weights, queries, keys, titles)
    left = _GAP / 2 + max(map(_width, queries), default=0)
    slanted = max(map(_width, keys), default=0) * _SLANT
    top = _TITLE + slanted + _CELL / 2
    step = len(keys) * _CELL + _GAP
    # The label of the last column extends to the right.
    width = left + len(weights) * step + slanted
    height = top + len(queries) * _CELL + _GAP / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, query in enumerate(queries):
        y = top + (row + 0.5) * _CELL
        parts.append(_text(query, left - 6, y, 'text-anchor="end" dominant-baseline="central"'))
    for n, (head, title) in enumerate(zip(weights, titles, strict=True)):
        x = left + n * step
        parts.append(_text(title, x, _TITLE / 2, 'fill="#555" dominant-baseline="central"'))
        parts.extend(_matrix(head, queries, keys, x, top))
    return "\n".join([*parts, "</svg>\n"])


def _matrix(weights, queries, keys, left, top):
    for column, key in enumerate(keys):
        x, y = left + (column + 0.6) * _CELL, top - 6
        yield _text(key, x, y, f'transform="rotate(-45 {x:.0f} {y:.0f})"')
    for (row, column), weight in np.ndenumerate(weights):
        yield (
            f'<rect x="{left + column * _CELL:.0f}" y="{top + row * _CELL:.0f}" '
            f'width="{_CELL - 1}" height="{_CELL - 1}" fill="#08519c" '
            f'fill-opacity="{max(weight, 0.04):.3f}">'
            f"<title>{_clean(queries[row])} to {_clean(keys[column])}: {weight:.3f}</title></rect>"
        )


def _text(text, x, y, attributes):
    return f'<text x="{x:.0f}" y="{y:.0f}" {attributes}>{_clean(text)}</text>'


def _clean(text):
    """Escape a text for XML, which forbids control characters even if they are escaped."""
    return escape("".join(c if c.isprintable() else f"<{ord(c):02X}>" for c in text))


def _width(text):
    return sum(_LETTER if ord(c) < 0x1100 else 2 * _LETTER for c in text) + 6


def check_labels(weights, queries, keys, titles):
    """Check the arguments of `attention_svg` and `heads_figure`."""
    weights = np.asarray(weights, np.float64)
    if weights.ndim == 2:
        weights = weights[np.newaxis]  # (1, T, S)
        titles = [""] if titles is None else titles
    if weights.ndim != 3:
        expected = "(heads, queries, keys) or (queries, keys)"
        remedy = "Select one sentence of a batch: weights[0]."
        raise ArgumentError("weights", expected, f"shape {weights.shape}", remedy)
    if weights.size and not (weights.min() >= 0 and weights.max() <= 1.0001):  # NaN fails too
        got = f"{weights.min():.3g} to {weights.max():.3g}"
        remedy = "Pass the output of the softmax, not the scores."
        raise ArgumentError("weights", "numbers in [0, 1]", got, remedy)
    if titles is None:
        titles = [f"head {n}" for n in range(1, len(weights) + 1)]
    axes = {"titles": titles, "queries": queries, "keys": keys}
    for axis, (name, labels) in enumerate(axes.items()):
        if len(labels) != weights.shape[axis]:
            expected = f"{weights.shape[axis]} strings, one for each step of axis {axis} of weights"
            raise ArgumentError(name, f"{expected} {weights.shape}", len(labels))
    return weights, titles


def translation_attention(model, tokenizer, source, translation):
    """Compute the attention of the decoder's last layer to the source, with both sides' tokens.

    The model reads the translation as in training (teacher forcing): row t is the attention while
    predicting token t, the last one the end. Long texts are truncated, as in `Translator`.

    Args:
        model: `Transformer` with the vocabulary of `tokenizer`.
        tokenizer: `GraphTokenizer`, or the one inside a loaded SavedModel.
        source, translation: str.

    Returns:
        `(weights, target_tokens, source_tokens)`: float32 array (N, T, S), T and S strings; the
        arguments of `attention_svg`. Both sides end in "</s>"; tokens that are part of a character
        are written as hexadecimal bytes.

    Example:
        >>> from tf_transformer.export import load_transformer, shipped_model
        >>> model, tokenizer = load_transformer(shipped_model("en-zh"))
        >>> weights, rows, columns = translation_attention(model, tokenizer, "Hello.", "你好。")
        >>> weights.shape[1:] == (len(rows), len(columns))
        True
    """
    inputs = teacher_forcing_ids(model, tokenizer, source, translation)
    _, attention = model(inputs, False, return_attention_weights=True)
    layers = model.get_config()["num_layers"]  # of encoder and decoder, or both numbers
    last = f"decoder_layer{layers if isinstance(layers, int) else layers[1]}_block2"
    ids = inputs[1][0, 1:], inputs[0][0, :-1]
    tokens = [[*token_labels(tokenizer, one), "</s>"] for one in ids]
    return attention[last][0].numpy(), *tokens


def token_labels(tokenizer, ids):
    """Return the text of each token, without the space before a word."""
    names = {number: name for name, number in getattr(tokenizer, "special_tokens", {}).items()}
    pieces = tokenizer.pieces(ids).numpy()
    return [names.get(n, _label(piece)) for n, piece in zip(ids.numpy(), pieces, strict=True)]


def _label(piece):
    try:
        return piece.decode("utf-8").strip() or "\N{OPEN BOX}"
    except UnicodeDecodeError:
        return piece.hex()


class AttentionStack(NamedTuple):
    """The labels and the arrays of one kind of attention."""

    kind: str
    queries: list
    keys: list
    layers: list

    @classmethod
    def of(cls, kind, queries, keys, calls):
        """Make a stack of the calls, each for one text, that `recorded_attention` recorded."""

        def arrays(call):
            queries, keys, weights = (np.asarray(part[0], np.float32) for part in call)
            is_finite = all(np.isfinite(part).all() for part in (queries, keys, weights))
            check(is_finite, "model", f"finite numbers in the attention of the {kind}", "others")
            keys = np.repeat(keys, len(queries) // len(keys), axis=0)  # (N, S, H)
            return RecordedAttention(queries, keys, weights)

        return cls(kind, list(queries), list(keys), [arrays(call) for call in calls])


def bert_stacks(model, tokenizer, texts):
    """Record the attention of BERT for a text or a pair."""
    encoder = getattr(model, "bert", model)
    most = encoder.config.max_length
    inputs = text_inputs(tokenizer, texts[:1], texts[1:] or None, most)
    with recorded_attention() as calls:
        encoder(inputs, training=False, return_attentions=True)
    labels = token_labels(tokenizer, inputs["input_ids"][0])
    return [AttentionStack.of("encoder", labels, labels, calls)]


def transformer_stacks(model, tokenizer, source, translation):
    """Record the attention of a translator for a text and its translation, as in training."""
    source_ids, target_ids = teacher_forcing_ids(model, tokenizer, source, translation)
    padding = padding_mask(source_ids, model.pad_id)
    with recorded_attention() as calls:
        encoded, _ = model.encoder(source_ids, False, padding, return_attention_weights=True)
        depth = len(calls)
        model.decoder(target_ids, encoded, False, None, padding, True, causal=True)
    of_source = [*token_labels(tokenizer, source_ids[0, :-1]), "</s>"]
    of_target = token_labels(tokenizer, target_ids[0, 1:])
    read, predicted = ["<s>", *of_target], [*of_target, "</s>"]
    decoder = calls[depth:]  # alternates between self-attention and cross-attention
    return [
        AttentionStack.of("encoder", of_source, of_source, calls[:depth]),
        AttentionStack.of("decoder", read, read, decoder[0::2]),
        AttentionStack.of("cross", predicted, of_source, decoder[1::2]),
    ]


def teacher_forcing_ids(model, tokenizer, source, translation):
    """Return the inputs of a translator for a text and its translation."""
    encoded = tokenizer.encode_strings(tf.constant([source, translation]))
    config = model.get_config()
    longest = config["pe_input"], config["pe_target"]
    source_ids, target_ids = (
        ids.numpy()[: most - 1] for ids, most in zip(encoded, longest, strict=True)
    )
    special = {role: int(number) for role, number in tokenizer.special_ids().items()}
    inputs = [[*source_ids, special["end"]]], [[special["start"], *target_ids]]
    return tuple(tf.constant(ids, tf.int32) for ids in inputs)


_FOLDER = Path(__file__).parent / "page"
_SCRIPTS = ("text", "data", "drawing", "overview", "head", "token", "layers", "app")
LANGUAGES = {"en": "en", "zh": "zh-CN"}


def explorer_page(stacks, title, lang="en"):
    """Return attention as a page that needs only a browser, and allows no requests."""
    data = {"lang": lang, "stacks": []}
    for stack in stacks:
        layers = [_packed_layer(layer) for layer in stack.layers]
        data["stacks"].append({**stack._asdict(), "layers": layers})
    scripts = "\n".join(_read(f"{name}.js") for name in _SCRIPTS)
    style, script = _read("style.css"), f'(() => {{\n"use strict";\n{scripts}}})();\n'
    parts = {
        "lang": LANGUAGES[lang],
        "title": escape(title),  # shows markup as text
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        # `<` could end the element, as in `</script>`, or start a comment.
        "data": json.dumps(data).replace("<", "\\u003c"),
    }
    # In one pass, so that nothing is replaced inside the inserted parts.
    return re.sub(r"@(\w+)@", lambda mark: parts[mark[1]], _read("page.html"))


def _read(name):
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text):
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _packed_layer(layer):
    weights = np.rint(np.clip(layer.weights, 0, 1) * 255).astype(np.uint8)
    packed = {"heads": len(weights), "width": layer.queries.shape[-1], "weights": _base64(weights)}
    for name in ("queries", "keys"):
        heads = np.asarray(getattr(layer, name))  # (N, T or S, H)
        scale = np.maximum(np.abs(heads).max(axis=(1, 2)), 1e-30) / 32767  # (N,)
        packed[name] = _base64(np.rint(heads / scale[:, None, None]).astype("<i2"))
        packed[f"{name}_scale"] = [float(f"{one:.6g}") for one in scale]
    return packed


def _base64(array):
    return base64.b64encode(array.tobytes()).decode()


def explorer(model_or_folder, texts, path, *, tokenizer=None, lang="en"):
    """Write a page that shows the attention of all layers and heads for a text.

    The page is a single file that works offline. It shows the self-attention of BERT or of a
    translator's encoder and decoder, and the cross-attention. Returns the path of the file.

    Args:
        model_or_folder: a built `Transformer`, `Bert` or model with a head on `Bert`; or str or
            Path of a folder: an exported translator, a training run of a translator, or a
            checkpoint that `Bert.from_pretrained` reads.
        texts: str, or a list of one or two: for BERT a text or a pair; for a translator a text and
            its translation, which is decoded greedily if missing.
        path: str or Path of the HTML file; an existing file is replaced.
        tokenizer: the model's `GraphTokenizer`; None for a folder, which has its own.
        lang: "en" or "zh", the language of the page's interface; a button changes it.

    Raises:
        FileNotFoundError: If the folder has no model or vocabulary, or the file no folder.
        ValueError: If the texts are not one or two str, `lang` is unknown, the model has another
            class or computes NaN, or `tokenizer` is missing for a model or given for a folder.

    Example:
        >>> from tf_transformer.export import shipped_model
        >>> texts = "I love China.", "我爱中国。"
        >>> page = explorer(shipped_model("en-zh"), texts, "attention.html")
        >>> page.read_text("utf-8")[:15]
        '<!doctype html>'
    """
    check_choice("lang", lang, LANGUAGES)
    texts = [texts] if isinstance(texts, str) else list(texts)
    if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError("texts", "one or two str", f"{texts!r}")
    check_replaceable(path)
    model = model_or_folder
    if isinstance(model, (str, os.PathLike)):
        check(tokenizer is None, "tokenizer", "None for a folder, which has its own", "one")
        model, tokenizer = _loaded(Path(model_or_folder))
    elif tokenizer is None:
        remedy = "GraphTokenizer.from_file reads a tokenizer.json."
        raise ArgumentError("tokenizer", "the GraphTokenizer of the model", "None", remedy)
    if not isinstance(model, Transformer | PretrainedBert):
        raise ArgumentError("model_or_folder", "a Transformer or a Bert", type(model).__name__)
    check_vocabulary(model, tokenizer)
    if isinstance(model, Transformer):
        if len(texts) == 1:
            [translation] = Translator(model, tokenizer).translate(tf.constant(texts)).numpy()
            texts = [*texts, translation.decode("utf-8", "replace")]
        stacks = transformer_stacks(model, tokenizer, *texts)
    else:
        stacks = bert_stacks(model, tokenizer, texts)
    page = explorer_page(stacks, " / ".join(texts), lang)
    with replacing(path) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(path)


def _loaded(folder):
    if (folder / DESCRIPTION).is_file():
        return load_transformer(folder)
    if (folder / "run.json").is_file():
        run = TrainingRun.open(folder)
        return run.best_model(), GraphTokenizer.from_file(run.tokenizer_path)
    if not folder.is_dir():
        expected = "the folder of an exported translator, of a training run or of a BERT checkpoint"
        raise MissingFileError("model_or_folder", expected, f"no folder: {folder}")
    return Bert.from_pretrained(folder), read_tokenizer(folder)
