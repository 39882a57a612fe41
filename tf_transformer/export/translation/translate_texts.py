"""Translating any number of texts, in batches of similar length.

Axes: n size of an n-best list.
"""

import concurrent.futures
import itertools

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.cores import cores

# Each batch that is decoded holds its own memory.
_MOST_AT_ONCE = 8


def translate_texts(
    translator,
    texts,
    *,
    beam=False,
    sample=None,
    tokens_per_batch=2048,
    progress=None,
    counted=None,
):
    """Translate texts in batches of similar length, on a CPU as many at once as it has cores.

    A process that does nothing else should start with the environment variable
    TF_NUM_INTRAOP_THREADS=1, as the command `translate` does: the operations of a step are so small
    that sharing each of them among the cores takes longer (benchmarks/decoding/NOTES.md).

    Args:
        translator: a `Translator` or a loaded one.
        texts: list of str.
        beam: bool, whether to use `translate_beam` and return the best of each n-best list.
        sample: None, or `Sampling`, to use `translate_sample`. With neither, decoding is greedy.
        tokens_per_batch: int, maximum number of tokens in a batch, including padding; a longer text
            gets its own batch.
        progress: None, or a function called with the number of texts done.
        counted: None, or a function called before the first batch with the number of tokens of
            each text, without the end token, e.g. to report texts too long for the model.

    Returns:
        list of str, in the order of `texts`.

    Raises:
        ValueError: If `tokens_per_batch` is below 1, both `beam` and `sample` are given, or the
            model was exported without the signature.

    Example:
        >>> from tf_transformer.export.translation.saved_translator import load_translator
        >>> from tf_transformer.export.translation.shipped_models import shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> len(translate_texts(translator, ["Hello!", ""]))
        2
    """
    if beam and sample is not None:
        raise ArgumentError("beam, sample", "at most one of them", "both")
    if beam:
        found = n_best_translations(
            translator,
            texts,
            tokens_per_batch=tokens_per_batch,
            progress=progress,
            counted=counted,
        )
        return [translations[0][0] for translations in found]

    def translate(batch, first):
        if sample is None:
            translations = translator.translate(batch)
        else:
            translations = translator.translate_sample(batch, **sample.arguments(first))
        return [text.decode("utf-8") for text in translations.numpy()]

    if sample is not None:
        _check_exported_with(translator, "translate_sample")
    return _in_batches(
        translate,
        translator,
        texts,
        tokens_per_batch,
        progress,
        counted,
    )


def n_best_translations(translator, texts, *, tokens_per_batch=2048, progress=None, counted=None):
    """Translate texts with beam search, and return the n-best lists.

    Args:
        translator, texts, tokens_per_batch, progress, counted: see `translate_texts`.

    Returns:
        list of the n-best list of each text: n `(translation, score)`, the best first; "" with
        -inf where there are fewer. n was set when the model was exported.

    Raises:
        ValueError: See `translate_texts`.

    Example:
        >>> from tf_transformer.export.translation.saved_translator import load_translator
        >>> from tf_transformer.export.translation.shipped_models import shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> [[(translation, score), *_]] = n_best_translations(translator, ["Thank you."])
        >>> translation, score < 0
        ('谢谢你。', True)
    """
    _check_exported_with(translator, "translate_beam")

    def translate(batch, first):
        found = translator.translate_beam(batch)
        rows = zip(found["translations"].numpy(), found["scores"].numpy().tolist(), strict=True)
        return [
            [(text.decode("utf-8"), score) for text, score in zip(*row, strict=True)]
            for row in rows
        ]

    return _in_batches(translate, translator, texts, tokens_per_batch, progress, counted)


def count_tokens(translator, texts):
    """Count the tokens of texts, without the end token."""
    return translator.tokenizer.encode_strings(_strings(texts)).row_lengths().numpy().tolist()


def _check_exported_with(translator, signature):
    if not hasattr(translator, signature):
        raise ArgumentError(
            "translator",
            f"one with {signature}",
            "one that an earlier version exported",
            "Export it again: tf-transformer export RUN",
        )


def _in_batches(translate, translator, texts, tokens_per_batch, progress, counted):
    if tokens_per_batch < 1:
        raise ArgumentError("tokens_per_batch", "at least 1", tokens_per_batch)
    lengths = count_tokens(translator, texts)
    if counted:
        counted(lengths)
    batches = batches_by_length(lengths, tokens_per_batch)
    strings = (_strings([texts[i] for i in rows]) for rows in batches)
    before = itertools.accumulate(map(len, batches), initial=0)
    results, done = [None] * len(texts), 0
    # An error or Ctrl-C ends the iterator of `map`, which drops the batches that wait.
    with concurrent.futures.ThreadPoolExecutor(min(cores(), _MOST_AT_ONCE)) as threads:
        for rows, found in zip(batches, threads.map(translate, strings, before), strict=True):
            for i, result in zip(rows, found, strict=True):
                results[i] = result
            done += len(rows)
            if progress:
                progress(done)
    return results


def batches_by_length(lengths, tokens_per_batch):
    """Divide texts into batches of similar length."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    for i in order:
        room = batches and tokens_per_batch // (lengths[batches[-1][0]] + 1) > len(batches[-1])
        if room:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def _strings(texts):
    # Encoded here, so that lone surrogates, which UTF-8 cannot hold, do not fail the batch.
    return tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)
