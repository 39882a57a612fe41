"""The explorer: what a model attends to, as a page to look through in a browser."""

import os
from pathlib import Path

import tensorflow as tf

from tf_transformer.data.replacing import check_replaceable, replacing
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.export.translation.saved_translator import DESCRIPTION, load_transformer
from tf_transformer.export.translation.translator import Translator
from tf_transformer.models.bert.bert import Bert
from tf_transformer.models.bert.pretrained_bert import PretrainedBert
from tf_transformer.models.bert.text_inputs import read_tokenizer
from tf_transformer.models.transformer import Transformer
from tf_transformer.models.vocabulary import check_vocabulary
from tf_transformer.tokenizers import GraphTokenizer
from tf_transformer.training import TrainingRun
from tf_transformer.visualize.attention_stacks import bert_stacks, transformer_stacks
from tf_transformer.visualize.explorer_page import LANGUAGES, explorer_page


def explorer(model_or_folder, texts, path, *, tokenizer=None, lang="en"):
    """Write a page that shows the attention of all layers and heads for a text.

    The page is one file, which works without a network. It has the attention of BERT's encoder; or
    of a translator's encoder, its decoder, and from its decoder to its encoder.

    Args:
        model_or_folder: a built `Transformer`, `Bert` or model with a head on `Bert`; or str or
            Path of a folder: an exported translator, a training run of a translator, or a
            checkpoint that `Bert.from_pretrained` reads.
        texts: str, or one or two of them: for BERT a text or a pair; for a translator a text and
            its translation, which is decoded greedily if it is missing.
        path: str or Path of the HTML file; a file there is replaced.
        tokenizer: the `GraphTokenizer` of a model; a folder has its own.
        lang: "en" or "zh", the language of the page's interface; a button changes it.

    Returns:
        Path of the file.

    Raises:
        FileNotFoundError: If the folder has no model or no vocabulary, or there is no folder for
            the file.
        ValueError: If the texts are not one or two str, `lang` is another language, the model is of
            another class, a model has no tokenizer, or a folder has one already; see also
            `load_transformer`.

    Example:
        >>> from tf_transformer.export import shipped_model
        >>> texts = "I love China.", "我爱中国。"
        >>> page = explorer(shipped_model("en-zh"), texts, "attention.html")
        >>> page.read_text("utf-8")[:15]
        '<!doctype html>'
    """
    texts = _checked(texts, lang)
    check_replaceable(path)
    model = model_or_folder
    if isinstance(model, (str, os.PathLike)):
        if tokenizer is not None:
            raise ArgumentError("tokenizer", "None for a folder, which has its own", "one")
        model, tokenizer = _loaded(Path(model_or_folder))
    elif tokenizer is None:
        raise ArgumentError(
            "tokenizer",
            "the GraphTokenizer of the model",
            "None",
            "GraphTokenizer.from_file reads a tokenizer.json.",
        )
    if isinstance(model, Transformer | PretrainedBert):
        check_vocabulary(model, tokenizer)
    if isinstance(model, Transformer):
        if len(texts) == 1:
            [translation] = Translator(model, tokenizer).translate(tf.constant(texts)).numpy()
            texts = [*texts, translation.decode("utf-8", "replace")]
        stacks = transformer_stacks(model, tokenizer, *texts)
    elif isinstance(model, PretrainedBert):
        stacks = bert_stacks(model, tokenizer, texts)
    else:
        raise ArgumentError("model_or_folder", "a Transformer or a Bert", type(model).__name__)
    page = explorer_page(stacks, " / ".join(texts), lang)
    with replacing(path) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(path)


def _checked(texts, lang):
    if lang not in LANGUAGES:
        raise ArgumentError("lang", f"one of {', '.join(LANGUAGES)}", f"{lang!r}")
    texts = [texts] if isinstance(texts, str) else list(texts)
    if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError("texts", "one or two str", f"{texts!r}")
    return texts


def _loaded(folder):
    """The model of a folder, and its tokenizer."""
    if (folder / DESCRIPTION).is_file():
        return load_transformer(folder)
    if (folder / "run.json").is_file():
        run = TrainingRun.open(folder)
        return run.best_model(), GraphTokenizer.from_file(run.tokenizer_path)
    if not folder.is_dir():
        raise MissingFileError(
            "model_or_folder",
            "the folder of an exported translator, of a training run or of a BERT checkpoint",
            f"no folder: {folder}",
        )
    return Bert.from_pretrained(folder), read_tokenizer(folder)
