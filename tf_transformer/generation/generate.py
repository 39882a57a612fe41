"""Generating with a published model's settings.

Axes: B batch, P prompt or source length, n results of each, L limit of the tokens after the start
token, T length of the longest result.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.ids import asserted
from tf_transformer.generation.beam_search import beam_search
from tf_transformer.generation.decoding import greedy_decode, sample_decode
from tf_transformer.generation.rules import check_range, is_among
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer


def generate(
    model,
    inputs,
    *,
    end_id,
    start_id=None,
    pad_id=None,
    max_length=None,
    max_new_tokens=None,
    min_length=0,
    min_new_tokens=None,
    n_best=1,
    beams=None,
    sampling=None,
    seed=0,
    step=None,
    **options,
):
    """Continue prompts, or generate targets of sources, as `generate` of transformers.

    With the settings of `generation_settings`, greedy decoding and beam search give the same tokens
    as transformers. Texts of different lengths in a batch give the same tokens as each text alone.
    Every call traces the model anew, unless the calls are those of one `tf.function`:
    `tf.function(functools.partial(generate, model, **settings))`.

    Args:
        model: built `LanguageModel` or `Transformer`.
        inputs: integer tensor (B, P), with padding at the end of shorter texts, or a ragged tensor:
            prompts of at least one token, whose first token takes the place of a start token; or
            the sources of a `Transformer`.
        end_id: int, or tuple of int, the tokens that end a text; `()` for none.
        start_id: int, the token with which the targets of a `Transformer` begin.
        pad_id: int, the id after the end of shorter results; by default, the first `end_id`, or 0.
        max_length, max_new_tokens: int, at most so many tokens in the result, or after the prompt
            or the start token; the second counts if both are given, 20 if none is. The second may
            be a tensor, int32 () or (B,).
        min_length, min_new_tokens: int, no end token within so many tokens, counted like these.
        n_best: int n, results of each text: the n-best list of beam search, or so many samples.
        beams: None, or dict, the options specific to `beam_search`, except `n_best`.
        sampling: None, or dict, the options specific to `sample_decode`, except `seed`; {} for its
            defaults.
        seed: int or scalar int32 tensor for sampling.
        step: None for `model.step`, or a function like it.
        options: `no_repeat_ngram`, `token_rules`, `jit_compile` and, without `beams`,
            `is_complete`, see `greedy_decode`.

    Returns:
        int32 tensor (B * n, T), ids with the prompt, or the start token, and the end token, and
        `pad_id` after it; the n results of a text are adjacent.

    Raises:
        ValueError: If the model is of another class, both `beams` and `sampling` are given, a
            prompt is empty or as long as `max_length`, or `max_length` is more than the model has
            positions for; in a graph, tf.errors.InvalidArgumentError.

    Example:
        >>> from tf_transformer import LanguageModel
        >>> model = LanguageModel(1, 8, 2, 16, vocab_size=13, max_position=9, pad_id=None)
        >>> model.build()
        >>> ids = generate(model, [[5, 7]], end_id=(), max_new_tokens=4)
        >>> ids.shape.as_list(), ids[0, :2].numpy().tolist()
        ([1, 6], [5, 7])
    """
    if beams is not None and sampling is not None:
        raise ArgumentError("beams, sampling", "one of them", "both")
    if beams is not None and "beam_size" not in beams:
        raise ArgumentError("beams", "a dict with beam_size", f"{beams!r}")
    beam_size = 1 if beams is None else beams["beam_size"]
    check_range("n_best", n_best, 1, beam_size if sampling is None else None)
    if sampling is not None and n_best > 1:
        inputs = inputs if isinstance(inputs, tf.RaggedTensor) else tf.convert_to_tensor(inputs)
        inputs = tf.gather(inputs, tf.repeat(tf.range(tf.shape(inputs)[0]), n_best))
    lengths = (max_length, max_new_tokens), (min_length, min_new_tokens)
    state, of_texts = start_texts(model, inputs, start_id, beam_size, *lengths)
    first, prompt_lengths, limits, longest = (
        of_texts[name] for name in ("start_id", "prompt_lengths", "limits", "max_length")
    )
    batch_size, step = tf.size(first), step or model.step
    options |= {**of_texts, "end_id": end_id, "resize": model.resize}
    if beams is not None:
        options |= {**beams, "n_best": n_best, "reorder": model.reorder}
        ids, _ = beam_search(step, state, batch_size, **options)
        first, limits, prompt_lengths = (
            tf.repeat(x, n_best) for x in (first, limits, prompt_lengths)
        )
        ids = tf.reshape(ids, (-1, longest))
    elif sampling is not None:
        ids = sample_decode(step, state, batch_size, seed=seed, **sampling, **options)
    else:
        ids = greedy_decode(step, state, batch_size, **options)
    ends = tuple(end_id) if isinstance(end_id, tuple | list) else (end_id,)
    places = tf.range(longest)
    is_end = is_among(ids, ends) & (places >= prompt_lengths[:, tf.newaxis])
    ended = tf.cumsum(tf.cast(is_end, tf.int32), axis=1, exclusive=True) > 0
    ended |= places >= limits[:, tf.newaxis]
    ids = tf.where(ended, (*ends, 0)[0] if pad_id is None else pad_id, ids)
    ids = tf.concat([first[:, tf.newaxis], ids], axis=1)
    return ids[:, : 1 + tf.reduce_max(tf.reduce_sum(tf.cast(~ended, tf.int32), axis=1))]


def start_texts(model, inputs, start_id, beam_size, most, least):
    """The first state, and what differs between texts, as options of a decoding strategy.

    `most` and `least` are `max_length` and `max_new_tokens`, `min_length` and `min_new_tokens`.
    """
    state, first, prompt_lengths = _start(model, inputs, start_id, beam_size)

    def after_first(length, new_tokens):
        """The number of tokens after the first, of a whole text or after its prompt."""
        if new_tokens is not None:
            return prompt_lengths + new_tokens
        return tf.fill((tf.size(first),), tf.maximum(length - 1, 0))

    for kind, values, smallest in (("max", most, 1), ("min", least, 0)):
        for name, value in zip(("length", "new_tokens"), values, strict=True):
            check_range(f"{kind}_{name}", value, smallest)
    is_default = all(value is None for value in most)
    limits = after_first(*((None, 20) if is_default else most))
    limits = _checked_limits(model, limits, prompt_lengths, is_default)
    return state, {
        "start_id": first,
        "max_length": tf.reduce_max(limits),
        "limits": limits,
        "min_length": after_first(*least),
        "pad_id": None,  # a token like others, unless it is among `bad_words`
        "prompt_lengths": prompt_lengths,
    }


def _start(model, inputs, start_id, beam_size):
    """The first state, and of each text the first token and the number of a prompt's others."""
    if isinstance(model, Transformer):
        check_range("start_id", start_id, 0)
        if start_id is None:
            raise ArgumentError("start_id", "the id with which targets begin", "None")
        state = model.start(inputs, 0, beam_size)
        batch_size = tf.shape(state["lineage"])[0]
        return state, tf.fill((batch_size,), start_id), tf.zeros((batch_size,), tf.int32)
    if not isinstance(model, LanguageModel):
        raise ArgumentError("model", "a LanguageModel or a Transformer", type(model).__name__)
    if start_id is not None:
        expected = "None for a language model, whose prompts begin with a token"
        raise ArgumentError("start_id", expected, start_id)
    if not isinstance(inputs, tf.RaggedTensor):
        inputs = tf.convert_to_tensor(inputs)
    error = ("inputs", "at least one token of each prompt", "none")
    if inputs.shape[1] == 0:
        raise ArgumentError(*error)
    state = model.start(inputs[:, 1:], 0, beam_size)
    first = tf.cast(inputs[:, :1], tf.int32)
    if isinstance(first, tf.RaggedTensor):
        is_there = tf.reduce_all(first.row_lengths() > 0)
        first = asserted(first.to_tensor(shape=(None, 1)), is_there, *error)
    elif model.pad_id is not None:
        first = asserted(first, tf.reduce_all(first != model.pad_id), *error)
    first = tf.squeeze(first, 1)
    prompt_lengths = tf.math.count_nonzero(state["prompt"] >= 0, axis=1, dtype=tf.int32)
    return model.prefill(state, first), first, prompt_lengths


def _checked_limits(model, limits, prompt_lengths, is_default):
    """Check the numbers of tokens after the first; a default number is reduced if need be."""
    config = model.get_config()
    name = "pe_target" if isinstance(model, Transformer) else "max_position"
    if is_default:
        limits = tf.minimum(limits, config[name] - 1)
    error = ("max_length", "more tokens than in every prompt", "fewer")
    limits = asserted(limits, tf.reduce_all(limits > prompt_lengths), *error)
    expected = f"at most {config[name]} tokens after the first ({name}), the model's positions"
    error = ("max_length, max_new_tokens", expected, "more")
    return asserted(limits, tf.reduce_all(limits <= config[name]), *error)
