"""Generating with published models, continuing texts, and several models as one.

Axes: B batch, P prompt or source length, n results of each, L limit of the tokens after the start
token, T length of the longest result.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.tensors import (
    are_tokens,
    as_ids,
    asserted,
    check_range,
    in_vocabulary,
)
from tf_transformer.generation.beam_search import beam_search, sample_decode
from tf_transformer.generation.decoding import greedy_decode, is_among, without_unused_ids
from tf_transformer.models.base_model import check_padding, check_vocabulary
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer

_OPTIONS = ("no_repeat_ngram", "token_rules", "jit_compile", "is_complete")


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
    as transformers, for each text those of the text alone. Every call traces the model anew, unless
    the calls are those of one `tf.function(functools.partial(generate, model, **settings))`.

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
        sampling: None, or dict, the options specific to `sample_decode`; {} for its defaults.
        seed: int or scalar int32 tensor for sampling, not in `sampling`.
        step: None for `model.step`, or a function like it.
        options: `no_repeat_ngram`, `token_rules`, `jit_compile` and, without `beams`,
            `is_complete`, see `greedy_decode`.

    Returns:
        int32 tensor (B * n, T), ids with the prompt, or the start token, and the end token, and
        `pad_id` after it; the n results of a text are adjacent.

    Raises:
        ValueError: If the model is of another class, both `beams` and `sampling` are given, a
            prompt is empty or as long as `max_length`, `max_length` is more than the model has
            positions for, or an id is outside of the vocabulary; in a graph,
            tf.errors.InvalidArgumentError.

    Example:
        >>> from tf_transformer import LanguageModel
        >>> model = LanguageModel(1, 8, 2, 16, vocab_size=13, max_position=9, pad_id=None)
        >>> model.build()
        >>> ids = generate(model, [[5, 7]], end_id=(), max_new_tokens=4)
        >>> ids.shape.as_list(), ids[0, :2].numpy().tolist()
        ([1, 6], [5, 7])
    """
    expected = f"one of {', '.join(_OPTIONS)}"
    remedy = "generation_settings converts the settings of transformers to these arguments."
    for name in options:
        check(name in _OPTIONS, "options", expected, f"{name!r}", remedy)
    check(beams is None or sampling is None, "beams, sampling", "one of them", "both")
    has_size = isinstance(beams, dict) and "beam_size" in beams
    check(beams is None or has_size, "beams", "a dict with beam_size", f"{beams!r}")
    check(isinstance(sampling, dict | None), "sampling", "a dict of options", f"{sampling!r}")
    beam_size = 1 if beams is None else beams["beam_size"]
    check_range("n_best", n_best, 1, beam_size if sampling is None else None)
    inputs = inputs if isinstance(inputs, tf.RaggedTensor) else as_ids(inputs, "inputs")
    if sampling is not None and n_best > 1:
        inputs = tf.gather(inputs, tf.repeat(tf.range(tf.shape(inputs)[0]), n_best))
    lengths = (max_length, max_new_tokens), (min_length, min_new_tokens)
    state, of_texts = start_texts(model, inputs, start_id, beam_size, *lengths)
    first, prompt_lengths, limits, longest = (
        of_texts[name] for name in ("start_id", "prompt_lengths", "limits", "max_length")
    )
    ends, config = end_id if isinstance(end_id, tuple | list) else (end_id,), model.get_config()
    for end in ends:
        check_range("end_id", end, 0, config.get("target_vocab_size", config.get("vocab_size")) - 1)
    batch_size, step = tf.size(first), step or model.step
    options |= {**of_texts, "end_id": end_id, "resize": model.resize}
    if beams is not None:
        options |= {**beams, "n_best": n_best, "reorder": model.reorder}
        ids, _ = beam_search(step, state, batch_size, **options)
        of_texts = (first, limits, prompt_lengths)
        first, limits, prompt_lengths = (tf.repeat(x, n_best) for x in of_texts)
        ids = tf.reshape(ids, (-1, longest))
    elif sampling is not None:
        ids = sample_decode(step, state, batch_size, seed=seed, **sampling, **options)
    else:
        ids = greedy_decode(step, state, batch_size, **options)
    places = tf.range(longest)
    is_end = is_among(ids, ends) & (places >= prompt_lengths[:, tf.newaxis])
    ended = tf.cumsum(tf.cast(is_end, tf.int32), axis=1, exclusive=True) > 0
    ended |= places >= limits[:, tf.newaxis]
    ids = tf.where(ended, (*ends, 0)[0] if pad_id is None else pad_id, ids)
    ids = tf.concat([first[:, tf.newaxis], ids], axis=1)
    return ids[:, : 1 + tf.reduce_max(tf.reduce_sum(tf.cast(~ended, tf.int32), axis=1))]


def start_texts(model, inputs, start_id, beam_size, most, least):
    """The first state, and what differs between texts, as options of a decoding strategy."""
    # `most` and `least` are `max_length` and `max_new_tokens`, `min_length` and `min_new_tokens`.
    state, first, prefix, prompt_lengths = _start(model, inputs, start_id, beam_size)

    def after_first(length, new_tokens):
        """The number of tokens after the first, of a whole text or after its prompt."""
        if new_tokens is not None:
            return prompt_lengths + new_tokens
        return tf.fill((tf.size(first),), tf.maximum(length - 1, 0))

    for kind, values, smallest in (("max", most, 1), ("min", least, 0)):
        for name, value in zip(("length", "new_tokens"), values, strict=True):
            check_range(f"{kind}_{name}", value, smallest)
    name = "pe_target" if isinstance(model, Transformer) else "max_position"
    positions = model.get_config()[name]
    if all(value is None for value in most):
        limits = tf.minimum(prompt_lengths + 20, positions - 1)
    else:
        limits = after_first(*most)
    error = ("max_length", "more tokens than in every prompt", "fewer")
    limits = asserted(limits, tf.reduce_all(limits > prompt_lengths), *error)
    expected = f"at most {positions} tokens after the first ({name}), the model's positions"
    error = ("max_length, max_new_tokens", expected, "more")
    limits = asserted(limits, tf.reduce_all(limits <= positions), *error)
    return state, {
        "start_id": first,
        "max_length": tf.reduce_max(tf.concat([limits, [1]], 0)),  # also of an empty batch
        "limits": limits,
        "min_length": after_first(*least),
        "pad_id": None,  # a token like others, unless it is among `bad_words`
        "prompt_lengths": prompt_lengths,
        "prefix": prefix,
    }


def _start(model, inputs, start_id, beam_size):
    """The first state, and of each text the first token, the prefix and the prompt's length."""
    if isinstance(model, Transformer):
        check(start_id is not None, "start_id", "the id with which targets begin", "None")
        check_range("start_id", start_id, 0, model.get_config()["target_vocab_size"] - 1)
        state = model.start(inputs, 0, beam_size)
        batch_size = tf.shape(state["lineage"])[0]
        first = tf.broadcast_to(tf.convert_to_tensor(start_id, tf.int32), (batch_size,))
        return state, first, None, tf.zeros((batch_size,), tf.int32)
    if not isinstance(model, LanguageModel):
        raise ArgumentError("model", "a LanguageModel or a Transformer", type(model).__name__)
    expected = "None for a language model, whose prompts begin with a token"
    check(start_id is None, "start_id", expected, start_id)
    error = ("inputs", "at least one token of each prompt", "none")
    check(inputs.shape[1] != 0, *error)
    state, first = model.start(inputs[:, 1:], 0, beam_size), inputs[:, :1]
    is_ragged = isinstance(first, tf.RaggedTensor)
    is_there = first.row_lengths() > 0 if is_ragged else are_tokens(first, model.pad_id)
    first = asserted(as_ids(first, "inputs"), tf.reduce_all(is_there), *error)
    first = in_vocabulary(first, model.get_config()["vocab_size"], "inputs")
    first = tf.reshape(tf.cast(first, tf.int32), (-1,))
    prompt_lengths = tf.math.count_nonzero(state["prompt"] >= 0, axis=1, dtype=tf.int32)
    state, prefix = model.prefill(state, first)
    return state, first, prefix, prompt_lengths


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
    check(texts, "texts", "at least one, which may be empty", "none")
    check(beam_size is None or sampling is None, "beam_size, sampling", "one of them", "both")
    check_padding(model)
    check_vocabulary(model, tokenizer)
    most = model.get_config()["max_position"]
    max_length = most if max_length is None else max_length
    check_range("max_length", max_length, 1)
    beginnings = tokenizer.encode(texts)
    expected = f"a beginning of at most {max_length} tokens (max_length)"
    remedy = f"Shorten it; the model reads at most {most}."
    for text, ids in zip(texts, beginnings, strict=True):
        check(len(ids) <= max_length, "text", expected, f"{len(ids)}: {text[:40]!r}..", remedy)
    prompt = tf.ragged.constant(beginnings, tf.int32, ragged_rank=1).to_tensor()
    ends = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
    options |= {**ends, "max_length": max_length}

    @tf.function(autograph=False)
    def decode():
        state = model.start(prompt, max_length, beam_size or 1)
        state, prefix = model.prefill(state, tf.fill((len(texts),), tokenizer.start_id))
        step = without_unused_ids(model.step, tokenizer.vocab_size)
        given = {**options, "prefix": prefix}
        if sampling is not None:
            return sample_decode(step, state, len(texts), **sampling, **given)
        if beam_size is None:
            return greedy_decode(step, state, len(texts), **given)
        beams = {"beam_size": beam_size, "reorder": model.reorder}
        return beam_search(step, state, len(texts), **beams, **given)[0][:, 0]

    return tokenizer.decode([ids[ids > 0] for ids in decode().numpy()])


# In the configs of `Transformer` and `LanguageModel`.
_VOCABULARIES = ("input_vocab_size", "target_vocab_size", "vocab_size", "pad_id")
_POSITIONS = ("pe_input", "pe_target", "max_position")


class Ensemble:
    """The mean of several models' probabilities, for every kind of decoding.

    p(y_t | y_<t, x) = 1/M sum_m p_m(y_t | y_<t, x), M models with the same vocabularies: Sutskever
    et al. 2014, section 3.6. An ensemble of translators can replace a `Transformer` in decoding, as
    in `Translator`; an ensemble of language models, a `LanguageModel`, as in `continue_texts`.

    Args:
        models: list of built models with `start`, `step`, `reorder` and `resize`, either all
            translators, such as `Transformer`, or all language models.

    Raises:
        ValueError: If there are no models, or their vocabularies differ in size.

    Example:
        >>> from tf_transformer import Transformer
        >>> models = [Transformer(1, 8, 2, 16, 11, 11, pe_input=9, pe_target=9) for _ in range(2)]
        >>> for model in models:
        ...     model.build()
        >>> ensemble = Ensemble(models)
        >>> state = ensemble.start(tf.constant([[5, 6, 2]]), max_length=4)
        >>> log_p, state = ensemble.step(tf.constant([1]), state)
        >>> log_p.shape.as_list()
        [1, 11]
    """

    def __init__(self, models):
        self.models = list(models)
        sizes = [_present(model.get_config(), _VOCABULARIES) for model in self.models]
        expected = "one or more with vocabularies of the same size, which read the same ids"
        check(sizes and all(other == sizes[0] for other in sizes), "models", expected, sizes)

    @property
    def weights(self):
        """The weights of all models."""
        return [weight for model in self.models for weight in model.weights]

    def get_config(self):
        """The configs of the `models`, their vocabularies, and the positions that all support."""
        configs = [model.get_config() for model in self.models]
        names = _present(configs[0], _POSITIONS)
        positions = {name: min(config[name] for config in configs) for name in names}
        return {"models": configs, **_present(configs[0], _VOCABULARIES), **positions}

    def start(self, inp, max_length, beam_size=1):
        """The states of all models before the first step; see the models' `start`."""
        return [model.start(inp, max_length, beam_size) for model in self.models]

    def prefill(self, state, start_ids):
        """See `LanguageModel.prefill`."""
        states, (prefix, *_) = zip(*self._each("prefill", state, start_ids), strict=True)
        return list(states), prefix

    def step(self, tokens, state):
        """See `Transformer.step`; the logits are log probabilities, float32 (B * K, V)."""
        results = [model.step(tokens, own) for model, own in zip(self.models, state, strict=True)]
        log_p = [tf.nn.log_softmax(tf.cast(logits, tf.float32)) for logits, _ in results]
        mean = tf.reduce_logsumexp(log_p, axis=0) - tf.math.log(float(len(log_p)))
        return mean, [own for _, own in results]

    def reorder(self, state, rows):
        """See `Transformer.reorder`."""
        return self._each("reorder", state, rows)

    def resize(self, state, kept, room):
        """See `Transformer.resize`."""
        return self._each("resize", state, kept, room)

    def _each(self, name, state, *arguments):
        pairs = zip(self.models, state, strict=True)
        return [getattr(model, name)(own, *arguments) for model, own in pairs]


def _present(config, names):
    return {name: config[name] for name in names if name in config}
