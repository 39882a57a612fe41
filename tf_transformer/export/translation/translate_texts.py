"""Any number of texts through a translator, in batches of like length.

Axes: n translations of a text.
"""

import tensorflow as tf


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
    """Translate texts, the long ones together and the short ones together.

    Args:
        translator: a `Translator` or a loaded one.
        texts: list of str.
        beam: bool, whether to use `translate_beam`, of whose n-best list the first comes back.
        sample: None, or `Sampling`, to use `translate_sample`. With neither, decoding is greedy.
        tokens_per_batch: int, the most tokens of a batch, padding counted; a longer text has a
            batch of its own.
        progress: None, or a function called with the number of texts done.
        counted: None, or a function called, before the first batch, with the tokens of each text,
            the end token apart: to say which are too long for the model.

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
        raise ValueError("beam, sample: expected at most one of them, got both.")
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
    """Translate texts by `translate_beam`, with the scores.

    Args:
        translator, texts, tokens_per_batch, progress, counted: as of `translate_texts`.

    Returns:
        list, for each text the list of its n `(translation, score)`, the best first; "" with
        -inf where there are fewer. n was fixed when the model was exported.

    Raises:
        ValueError: as `translate_texts`.

    Example:
        >>> from tf_transformer.export.translation.saved_translator import load_translator
        >>> from tf_transformer.export.translation.shipped_models import shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> [[(translation, score)]] = n_best_translations(translator, ["Thank you."])
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
    """Count the tokens of texts, the end token apart.

    Args:
        translator: a `Translator` or a loaded one.
        texts: list of str.

    Returns:
        list of int.

    Example:
        >>> from tf_transformer.export.translation.saved_translator import load_translator
        >>> from tf_transformer.export.translation.shipped_models import shipped_model
        >>> translator = load_translator(shipped_model("en-zh"))
        >>> count_tokens(translator, ["", "Hello!"])[0]
        0
    """
    return translator.tokenizer.encode_strings(_strings(texts)).row_lengths().numpy().tolist()


def _check_exported_with(translator, signature):
    if not hasattr(translator, signature):
        raise ValueError(
            f"translator: expected one with {signature}, got one that an earlier version exported. "
            "Export it again: tf-transformer export RUN"
        )


def _in_batches(translate, translator, texts, tokens_per_batch, progress, counted):
    if tokens_per_batch < 1:
        raise ValueError(f"tokens_per_batch: expected at least 1, got {tokens_per_batch}.")
    lengths = count_tokens(translator, texts)
    if counted:
        counted(lengths)
    results, done = [None] * len(texts), 0
    for rows in batches_by_length(lengths, tokens_per_batch):
        batch = _strings([texts[i] for i in rows])
        for i, result in zip(rows, translate(batch, done), strict=True):
            results[i] = result
        done += len(rows)
        if progress:
            progress(done)
    return results


def batches_by_length(lengths, tokens_per_batch):
    """Put like lengths together.

    Args:
        lengths: list of int, tokens, the end token apart.
        tokens_per_batch: int, see `translate_texts`.

    Returns:
        list of lists of int, the places in each batch, the longest first: what does not fit into
        memory shows at once.

    Example:
        >>> batches_by_length([3, 9, 2, 3], 8)
        [[1], [0, 3], [2]]
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    for i in order:
        room = batches and tokens_per_batch // (lengths[batches[-1][0]] + 1) > len(batches[-1])
        if room:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def one_line(text):
    """A translation as a field of a line: a space for every tab and for every end of a line.

    Args:
        text: str.

    Returns:
        str.

    Example:
        >>> one_line("a\\tb\\nc")
        'a b c'
    """
    return " ".join(text.replace("\t", " ").splitlines())


def _strings(texts):
    # Bytes, so that lone surrogates, which no UTF-8 holds, cannot stop the batch.
    return tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)
