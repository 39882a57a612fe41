"""Continuing texts with a language model.

Axes: B batch, P prompt length, L maximum length of a text.
"""

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.generation.beam_search import beam_search
from tf_transformer.generation.decoding import greedy_decode, sample_decode, without_unused_ids
from tf_transformer.generation.rules import check_range
from tf_transformer.models.base_model import check_padding, check_vocabulary


def continue_texts(
    model, tokenizer, texts, *, max_length=None, beam_size=None, sampling=None, **options
):
    """Continue texts greedily, by beam search or by sampling.

    Args:
        model: built `LanguageModel`; ids without a token are never chosen.
        tokenizer: `Tokenizer` with a start and an end token.
        texts: list of B strings, how each text begins; may be empty.
        max_length: None for as many as the model can read, or int L, the maximum number of tokens
            of a text, including its beginning.
        beam_size: None, or int, the number of beams of `beam_search`.
        sampling: None, or dict, the options specific to `sample_decode`; {} for its defaults.
        options: `min_length`, `no_repeat_ngram` and other options of all three kinds of decoding.

    Returns:
        List of B strings, the texts with their beginnings.

    Raises:
        ValueError: If there are no texts, the tokenizer has more tokens than the model, a beginning
            has more than `max_length` tokens, `max_length` is larger than the model's
            `max_position`, or both `beam_size` and `sampling` are given.

    Example:
        >>> from tf_transformer import BPETokenizer, LanguageModel
        >>> tokenizer = BPETokenizer.train(["low lower lowest"], vocab_size=262)
        >>> model = LanguageModel(1, 8, 2, 16, tokenizer.vocab_size, max_position=9)
        >>> model.build()
        >>> [text] = continue_texts(model, tokenizer, ["low"], sampling={"seed": 3})
        >>> text.startswith("low")
        True
    """
    if not texts:
        raise ArgumentError("texts", "at least one, which may be empty", "none")
    if beam_size is not None and sampling is not None:
        raise ArgumentError("beam_size, sampling", "one of them", "both")
    check_padding(model)
    check_vocabulary(model, tokenizer)
    most = model.get_config()["max_position"]
    max_length = most if max_length is None else max_length
    check_range("max_length", max_length, 1)
    beginnings = tokenizer.encode(texts)
    for text, ids in zip(texts, beginnings, strict=True):
        if len(ids) > max_length:
            expected = f"a beginning of at most {max_length} tokens (max_length)"
            remedy = f"Shorten it; the model reads at most {most}."
            raise ArgumentError("text", expected, f"{len(ids)}: {text[:40]!r}..", remedy)
    prompt = np.zeros((len(texts), max(map(len, beginnings))), np.int32)
    for row, ids in zip(prompt, beginnings, strict=True):
        row[: len(ids)] = ids
    options |= {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
    options["max_length"] = max_length

    @tf.function(autograph=False)
    def decode():
        state = model.start(prompt, max_length, beam_size or 1)
        state = model.prefill(state, tf.fill((len(texts),), tokenizer.start_id))
        step = without_unused_ids(model.step, tokenizer.vocab_size)
        if sampling is not None:
            return sample_decode(step, state, len(texts), **sampling, **options)
        if beam_size is None:
            return greedy_decode(step, state, len(texts), **options)
        beams = {"beam_size": beam_size, "reorder": model.reorder}
        return beam_search(step, state, len(texts), **beams, **options)[0][:, 0]

    return tokenizer.decode([ids[ids > 0] for ids in decode().numpy()])
