"""SavedModels of decoders and translators with their tokenizers: texts to texts.

Axes: B batch, P length of a prompt or source, T length, S stop strings.
"""

import dataclasses
import functools
import json
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.export.compile_for import signature, traced
from tf_transformer.export.saving import CHANCE, SEED, TEXTS, save_module
from tf_transformer.functional.tensors import asserted, check_range
from tf_transformer.generation.beam_search import drawing
from tf_transformer.generation.decoding import (
    DecodingRules,
    any_size,
    extension,
    first_sentences,
    likeliest,
    refuse_unusable,
    without_unused_ids,
)
from tf_transformer.generation.generate import generate, start_texts
from tf_transformer.models.base_model import check_vocabulary
from tf_transformer.models.bert.checkpoints.config_files import read_json
from tf_transformer.models.hugging_face import TranslationTokenizer, generation_settings, load
from tf_transformer.models.hugging_face.folders import FAMILIES
from tf_transformer.models.hugging_face.translation_tokenizers import decoder_tokenizer
from tf_transformer.models.hugging_face.translators import TRANSLATORS
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer
from tf_transformer.tokenizers import GraphTokenizer

ALL = 2**31 - 1  # a `top_k` that keeps every token
_NONE = -1  # the id after the end of a text
_ONE_TEXT = tf.TensorSpec((1,), tf.string, name="text")
_MOST = tf.TensorSpec((), tf.int32, name="max_new_tokens")
_STOP = tf.TensorSpec((None,), tf.string, name="stop")
_SOURCE = tf.TensorSpec((None,), tf.string, name="source_language")
_TARGET = tf.TensorSpec((None,), tf.string, name="target_language")
_ROOM = 16  # for new tokens; it doubles when it is full


class TextGenerator(tf.Module):
    """A model with its tokenizer, as a SavedModel: texts to their continuations or translations.

    After `save`, it loads in a process that has only TensorFlow. A prompt or source gets the
    special tokens that the tokenizer's file adds, once; special tokens in a text are plain text. A
    continuation is the decoded text without the decoded prompt, special tokens and the end token,
    as in the pipeline of transformers. A text that is longer than the model can read is an error.

    Stop strings end a text like an end token, as soon as the new text is sure to contain one. The
    result is that of the same call without them, cut before the one that ends first.

    Args:
        model: built `LanguageModel` or `Transformer`; ids without a token are never chosen.
        tokenizer: its `GraphTokenizer` or `TranslationTokenizer`.
        end_id, settings: arguments of `generate`, such as those of `generation_settings`, for one
            result of each text. `pad_id` is not used.
        start_id: int, the token with which the targets of a `Transformer` begin; or None, or the
            only token of the prompt of a `LanguageModel` for a text without tokens.
        stop: list of str, stop strings of every call.

    Raises:
        ValueError: If the model is of another class, the tokenizer has more tokens than the model,
            or a setting is out of range; if there are stop strings, also with `beams`, or a
            tokenizer that replaces parts of whole texts.

    Example:
        >>> from tf_transformer import BPETokenizer
        >>> BPETokenizer.train(["low lower lowest"], vocab_size=262).save("tokenizer.json")
        >>> tokenizer = GraphTokenizer.from_file("tokenizer.json")
        >>> model = LanguageModel(1, 8, 2, 16, tokenizer.vocab_size, max_position=9, pad_id=None)
        >>> model.build()
        >>> generator = TextGenerator(model, tokenizer, end_id=(), max_new_tokens=3)
        >>> [text] = generator.generate(["low"]).numpy()
        >>> "".join(generator.stream("low")) == text.decode()
        True
    """

    def __init__(self, model, tokenizer, *, end_id, start_id=None, stop=(), **settings):
        super().__init__(name="text_generator")
        if not isinstance(model, LanguageModel | Transformer):
            raise ArgumentError("model", "a LanguageModel or Transformer", type(model).__name__)
        self._translates = isinstance(model, Transformer)
        kind = TranslationTokenizer if self._translates else GraphTokenizer
        if not isinstance(tokenizer, kind):
            raise ArgumentError("tokenizer", f"a {kind.__name__}", type(tokenizer).__name__)
        check_vocabulary(model, tokenizer)
        size = tokenizer.vocab_size
        ends = tuple(end_id) if isinstance(end_id, tuple | list) else (end_id,)
        for name, number in (("start_id", start_id), *(("end_id", end) for end in ends)):
            check_range(name, number, 0, size - 1)
        if self._translates and start_id is None:
            raise ArgumentError("start_id", "the id with which targets begin", "None")
        check_range("n_best", settings.pop("n_best", 1), 1, 1)
        settings.pop("pad_id", None)
        beams, sampling = settings.pop("beams", None), settings.pop("sampling", None)
        self._start_id, self._stop, self._has_beams = start_id, checked_stop(stop), bool(beams)
        check(not beams or not stop, "stop", "none with beams", f"{stop!r}")
        self._max_length = settings.pop("max_length", None)
        self._max_new_tokens = settings.pop("max_new_tokens", None)
        check_range("max_length", self._max_length, 1)
        check_range("max_new_tokens", self._max_new_tokens, 1)
        self._least = settings.pop("min_length", 0), settings.pop("min_new_tokens", None)
        sizes = ("pe_input", "pe_target") if self._translates else ("max_position",) * 2
        self._longest, self._positions = (model.get_config()[name] for name in sizes)
        languages = tokenizer.languages if self._translates else ()
        if languages and tokenizer.first_field == "forced_bos_token_id":
            rules = settings.get("token_rules") or {}
            own = rules.get("forced_first")
            # A tensor: there is such a rule, and every text may have another token, see `_read`.
            own = tf.constant(-1 if own is None else own)
            settings["token_rules"] = {**rules, "forced_first": own}
        # Further numbers differ between texts, see `start`.
        fixed = {"start_id": 0, "max_length": 1, "min_length": 1, "pad_id": None}
        self._rules = DecodingRules(end_id=ends, **fixed, **settings)
        tokenizer.settled(tf.ragged.constant([[0]], tf.int32))  # refused early
        self.tokenizer = tokenizer
        # Not the model: the weights of a Keras layer tracked here would be saved twice.
        self.weights = [weight.value for weight in model.weights]
        # In partials: of a function that it tracks, a tf.Module saves a copy for each trace.
        step = functools.partial(tf.function(model.step, autograph=False))
        self._model_step, self._resize = without_unused_ids(step, size), model.resize
        self._start_texts = functools.partial(start_texts, model)
        least = dict(zip(("min_length", "min_new_tokens"), self._least, strict=True))
        options = {"end_id": ends, "step": self._model_step, "pad_id": _NONE}
        self._plain = functools.partial(generate, model, **options, **least, **settings)
        self._own = functools.partial(self._plain, beams=beams, sampling=sampling)
        self._own_step = functools.partial(self._extended, sampling=sampling)
        # A variable: a SavedModel does not restore other attributes.
        described = {"beams": beams, "sampling": sampling, "stop": self._stop}
        described |= {"max_length": self._max_length, "max_new_tokens": self._max_new_tokens}
        described |= {"translates": self._translates, "languages": languages}
        self.settings = tf.Variable(json.dumps(described), trainable=False)
        languages = (_SOURCE, _TARGET) if languages else ()
        self._specs = _MOST, _STOP, *languages
        self.generate = traced(self.generate, TEXTS, SEED, *self._specs)
        self.sample = traced(self.sample, TEXTS, SEED, *CHANCE, *self._specs)
        if beams:
            return
        self.start = traced(self.start, _ONE_TEXT, _MOST, *languages)
        state = self.start.get_concrete_function().structured_outputs
        state = tf.nest.map_structure(lambda x: tf.TensorSpec(any_size(x), x.dtype), state)
        self.step = traced(self.step, state, SEED, _STOP)
        self.sample_step = traced(self.sample_step, state, SEED, *CHANCE, _STOP)

    @classmethod
    def from_pretrained(
        cls,
        path,
        *,
        source_language=None,
        target_language=None,
        stop=(),
        ignored_fields=(),
        **changes,
    ):
        """Load the generator from the folder of a published decoder or encoder-decoder.

        Args:
            path: str or Path, a folder with `config.json`, safetensors and a tokenizer; its
                `generation_config.json` has the settings. A prompt without tokens begins with its
                `bos_token_id`.
            source_language, target_language: see `TranslationTokenizer.from_pretrained`.
            stop: see `TextGenerator`; besides the `stop_strings` of the folder.
            ignored_fields: see `load`.
            changes: fields that replace those of `generation_config.json`, see
                `generation_settings`: `do_sample=False`, `num_beams=1`.

        Raises:
            FileNotFoundError, ImportError, ValueError: See `load`, `generation_settings` and
                `GraphTokenizer.from_file`; besides `tokenizer.json`, Llama's `tokenizer.model` is
                read.
        """
        path = Path(path)
        try:
            model_type = read_json(path / "config.json").get("model_type")
            check_choice("model_type", model_type, FAMILIES)
        except ArgumentError as error:
            raise error.inside(path / "config.json") from None
        languages = {"source_language": source_language, "target_language": target_language}
        if model_type in TRANSLATORS:
            tokenizer = TranslationTokenizer.from_pretrained(path, **languages)
            changes = {**tokenizer.first_tokens, **changes}
        else:
            given = [name for name, value in languages.items() if value is not None]
            check(not given, ", ".join(given), "None for a decoder", "a language")
            tokenizer = decoder_tokenizer(path)
        settings = generation_settings(path, **{**changes, "stop_strings": None})
        files = [path / name for name in ("generation_config.json", "config.json")]
        contents = [changes, *(read_json(file) for file in files if file.is_file())]

        def field(name):
            return next((x[name] for x in contents if x.get(name) is not None), None)

        start = "decoder_start_token_id" if model_type in TRANSLATORS else "bos_token_id"
        settings["start_id"], own = field(start), field("stop_strings") or ()
        stop = (*((own,) if isinstance(own, str) else own), *stop)
        return cls(load(path, ignored_fields=ignored_fields), tokenizer, stop=stop, **settings)

    def generate(
        self, text, seed=0, max_new_tokens=0, stop=(), source_language=(), target_language=()
    ):
        """Continue or translate texts by the settings: string (B,) -> string (B,).

        `seed` only counts if they sample; `max_new_tokens` 0 stands for the settings' own limit;
        `stop`, string (S,), are further stop strings. The languages, string (1,) or (B,), only
        exist for a model whose texts carry one, and replace those of `from_pretrained`.
        tf.errors.InvalidArgumentError for a text without tokens, unless there is a `start_id`; for
        one that is too long; for an unknown language, or no source language at all; and for a
        number out of range, as in `generate`.
        """
        given = text, max_new_tokens, stop, (source_language, target_language)
        return self._continued(self._own, self._has_beams, *given, seed=seed)

    def sample(
        self,
        text,
        seed=0,
        temperature=1.0,
        top_k=ALL,
        top_p=1.0,
        max_new_tokens=0,
        stop=(),
        source_language=(),
        target_language=(),
    ):
        """Continue texts by `sample_decode`: string (B,) -> string (B,); see `generate`."""
        chance = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        given = text, max_new_tokens, stop, (source_language, target_language)
        return self._continued(self._plain, False, *given, sampling=chance, seed=seed)

    def stream(self, text, **options):
        """Continue one text in pieces, see `stream_text`."""
        return stream_text(self, text, **options)

    def start(self, text, max_new_tokens=0, source_language=(), target_language=()):
        """Read a prompt, string (1,); returns the first state for `step`; see `generate`."""
        inputs, prompt, first = self._read(text, source_language, target_language)
        most = None, self._new_tokens(prompt, max_new_tokens)
        state, of_text = self._start_texts(inputs, first.get("start_id"), 1, most, self._least)
        room = tf.reduce_max(of_text["prompt_lengths"]) + _ROOM
        rules = dataclasses.replace(self._rules, **{**first, **of_text})
        _, sentences = first_sentences(rules, 1)
        return self._resize(state, [0], room), sentences

    def step(self, state, seed=0, stop=()):
        """Add a token to a text by the settings; for the inputs see `generate`.

        Returns a dict: `state` for the next step; `done`, bool (); `text`, string (), the new text
        as far as no further token changes it, or all of it if it is done; `ended`, bool (), whether
        it is done by an end token or a stop string, not by its limit.
        """
        return self._own_step(state, stop, seed)

    def sample_step(self, state, seed=0, temperature=1.0, top_k=ALL, top_p=1.0, stop=()):
        """Add a token to a text by `sample_decode`, see `step`."""
        chance = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return self._extended(state, stop, seed, chance)

    def signatures(self):
        """`serving_default`: `text` -> `continuation`; `generate` and `sample` with all inputs."""
        continuation = functools.partial(signature, "continuation")
        return {
            "serving_default": continuation(self.generate, TEXTS),
            "generate": continuation(self.generate, TEXTS, SEED, *self._specs),
            "sample": continuation(self.sample, TEXTS, SEED, *CHANCE, *self._specs),
        }

    def save(self, path):
        """Write a SavedModel to a folder, in place of one; FileExistsError for other content."""
        save_module(self, path, self.signatures())

    def _read(self, text, source_language, target_language):
        """The ids that the model reads, those with which its texts begin, and options for these."""
        if self._translates:
            has_languages = bool(self.tokenizer.languages)
            ids = self.tokenizer.encode(text, source_language if has_languages else None)
            first = {"start_id": tf.fill((ids.nrows(),), self._start_id)}
            if has_languages:
                rules = self._rules
                is_start = self.tokenizer.first_field == "decoder_start_token_id"
                own = self._start_id if is_start else rules.forced_first
                given = "target_language", target_language, tf.size(text), own
                own = self.tokenizer.language_ids(*given)
                forced = {"token_rules": {**(rules.token_rules or {}), "forced_first": own}}
                first |= {"start_id": own} if is_start else forced
            starts = tf.RaggedTensor.from_tensor(first["start_id"][:, tf.newaxis])
            return self._short_enough(ids), starts, first
        ids = self.tokenizer.add_special_tokens(self.tokenizer.encode_strings(text))
        counts = ids.row_lengths()
        if self._start_id is None:
            error = ("text", "at least one token in each", "none")
            is_filled = tf.reduce_all(counts > 0)
            ids = ids.with_flat_values(asserted(ids.flat_values, is_filled, *error))
        else:
            is_empty = tf.cast(counts == 0, tf.int64)
            starts = tf.fill((tf.reduce_sum(is_empty),), self._start_id)
            ids = tf.concat([tf.RaggedTensor.from_row_lengths(starts, is_empty), ids], axis=1)
        prompt = self._short_enough(ids)
        return prompt, prompt, {}

    def _short_enough(self, ids):
        longest = tf.reduce_max(ids.row_lengths())
        expected = f"at most {self._longest} tokens in each, as many as the model can read"
        error = ("text", expected, "more", "The longest has:")
        values = asserted(ids.flat_values, longest <= self._longest, *error, longest)
        return ids.with_flat_values(values)

    def _new_tokens(self, prompt, given):
        """The largest numbers of new tokens, int32 (B,): as given, or 0 for the settings' own."""
        check_range("max_new_tokens", given, 0)
        counts = tf.cast(prompt.row_lengths(), tf.int32)
        own = self._max_new_tokens
        if own is None and self._max_length is None:
            own = tf.minimum(20, self._positions - counts)
        elif own is None:
            own = self._max_length - counts
        return tf.where(given > 0, given, own) + tf.zeros_like(counts)

    def _all_stops(self, stop):
        """The stop strings of a call, string (S,): those of every call and the given ones."""
        error = ("stop", "strings that are not empty", "an empty one")
        stop = asserted(stop, tf.reduce_all(stop != ""), *error)
        return tf.concat([tf.constant(self._stop, tf.string, (len(self._stop),)), stop], axis=0)

    def _is_complete(self, stop):
        """The argument of `greedy_decode` that ends texts at stop strings."""

        def contains(ids, sentences):
            ids = tf.concat([sentences["start_id"][:, tf.newaxis], ids], axis=1)
            counts = tf.minimum(sentences["prompt_lengths"] + 1, tf.shape(ids)[1])
            prompt = tf.RaggedTensor.from_tensor(ids, counts)
            text = self._after(self.tokenizer.settled, tf.RaggedTensor.from_tensor(ids), prompt)
            return cut_at_stop(text, stop)[1]

        def is_complete(ids, sentences):
            none = tf.zeros((tf.shape(ids)[0],), tf.bool)
            return tf.cond(tf.size(stop) > 0, lambda: contains(ids, sentences), lambda: none)

        return is_complete

    def _continued(self, function, has_beams, text, max_new_tokens, stop, languages, **chance):
        """The continuations of texts by `generate` with some of its arguments."""
        (inputs, prompt, first), stop = self._read(text, *languages), self._all_stops(stop)
        chance |= first
        if has_beams:
            stop = asserted(stop, tf.equal(tf.size(stop), 0), "stop", "none with beams", "some")
        else:
            chance["is_complete"] = self._is_complete(stop)
        ids = function(inputs, max_new_tokens=self._new_tokens(prompt, max_new_tokens), **chance)
        counts = tf.math.count_nonzero(ids != _NONE, axis=1, dtype=tf.int32)
        rows = self._without_end(ids, counts)
        return cut_at_stop(self._after(self.tokenizer.decode, rows, prompt), stop)[0]

    def _extended(self, state, stop, seed, sampling):
        (model, sentences), stop = state, self._all_stops(stop)
        choice = (likeliest, 1) if sampling is None else drawing(1, seed, **sampling)
        extend = extension(*choice, self._model_step, self._rules, self._is_complete(stop))
        # At first all of the prompt.
        begin, last = model["position"], sentences["prompt_lengths"][0]
        end, room = tf.maximum(begin, last) + 1, tf.shape(model["lineage"])[2]
        model = self._resize(model, [0], tf.where(end > room, 2 * room, room))

        def extend_all(position, failed_step, model, sentences):
            model, sentences, failed = extend(position, model, sentences)
            return position + 1, tf.where(failed, position, failed_step), model, sentences

        variables = begin, tf.constant(-1), model, sentences
        _, failed_step, model, sentences = tf.while_loop(
            lambda position, *_: position < end,
            extend_all,
            variables,
            shape_invariants=tf.nest.map_structure(any_size, variables),
        )
        refuse_unusable(failed_step)
        ids = tf.concat([sentences["start_id"][:, tf.newaxis], sentences["output"][:, :end]], 1)
        rows, prompt = (tf.RaggedTensor.from_tensor(x) for x in (ids, ids[:, : last + 1]))
        settled = self._after(self.tokenizer.settled, rows, prompt)
        rows = self._without_end(ids, tf.fill((1,), end + 1))
        whole, is_stopped = cut_at_stop(self._after(self.tokenizer.decode, rows, prompt), stop)
        done, is_end = sentences["done"], self._rules.is_end(ids[:, -1])
        text, ended = tf.where(done, whole, settled), done & (is_end | is_stopped)
        outputs = {"text": text[0], "done": done[0], "ended": ended[0]}
        return {"state": (model, sentences), **outputs}

    def _without_end(self, ids, counts):
        """The first ids of each row, ragged, without an end token after them."""
        last = tf.gather(ids, counts - 1, batch_dims=1)
        counts -= tf.cast(self._rules.is_end(last), tf.int32)
        return tf.RaggedTensor.from_tensor(ids, counts)

    def _after(self, decode, rows, prompt):
        """The text of rows after that of their prompts: ragged (B, (T)), (B, (P)) -> (B,)."""
        # Decoded together: the first token of a text may be spelled in another way.
        text, before = decode(rows), self.tokenizer.decode(prompt)
        size, start = (tf.strings.length(x, unit="UTF8_CHAR") for x in (text, before))
        start = tf.minimum(start, size)
        return tf.strings.substr(text, start, size - start, unit="UTF8_CHAR")


def checked_stop(stop):
    """Stop strings as a tuple, after a check."""
    if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
        raise ArgumentError("stop", "a list of strings that are not empty", f"{stop!r}")
    return tuple(stop)


def cut_at_stop(texts, stop):
    """Cut each text (B,) before the stop string (S,) that ends first; also whether it has one."""
    # Of several that end together the longest, as if the text grew by single characters.
    sizes = tf.strings.length(texts)

    def earlier(n, start, end):
        parts = tf.strings.split(texts, stop[n], maxsplit=1)
        found = tf.strings.length(tf.gather(parts.values, parts.row_starts()))
        until = tf.where(found < sizes, found + tf.strings.length(stop[n]), tf.int32.max)
        is_first = (until < end) | (tf.equal(until, end) & (found < start))
        return n + 1, tf.where(is_first, found, start), tf.where(is_first, until, end)

    first = tf.constant(0), sizes, tf.fill(tf.shape(texts), tf.int32.max)
    _, start, _ = tf.while_loop(lambda n, *_: n < tf.size(stop), earlier, first)
    return tf.strings.substr(texts, tf.zeros_like(start), start), start < sizes


def stream_text(
    model,
    text,
    *,
    max_new_tokens=0,
    stop=(),
    seed=0,
    source_language=None,
    target_language=None,
    **sampling,
):
    """Continue a text in pieces, each as soon as no further token changes it.

    Together they are the text of `TextGenerator.generate`, or with any of the numbers for sampling
    that of `sample`. What could be part of a stop string or of a character is held back.

    Args:
        model: `TextGenerator` without beams, or the loaded SavedModel of one.
        text: str.
        max_new_tokens, stop, seed: see `TextGenerator.generate`.
        source_language, target_language: str, see `TextGenerator.generate`.
        sampling: `temperature`, `top_k` and `top_p` of `TextGenerator.sample`.

    Yields:
        str, not empty. The generator returns "stop" after an end token or a stop string, and
        "length" at the limit.

    Raises:
        ValueError: If the settings have beams, or `stop` is not a list of strings.
        tf.errors.InvalidArgumentError: See `TextGenerator.generate`.

    Example:
        >>> from tf_transformer import BPETokenizer
        >>> BPETokenizer.train(["low lower lowest"], vocab_size=262).save("tokenizer.json")
        >>> tokenizer = GraphTokenizer.from_file("tokenizer.json")
        >>> model = LanguageModel(1, 8, 2, 16, tokenizer.vocab_size, max_position=9, pad_id=None)
        >>> model.build()
        >>> generator = TextGenerator(model, tokenizer, end_id=(), max_new_tokens=3)
        >>> pieces = [*stream_text(generator, "low", stop=["."], temperature=0.8)]
        >>> len(pieces) <= 3
        True
    """
    settings = json.loads(model.settings.numpy())
    check(not settings["beams"], "beams", "none for a stream", settings["beams"])
    stop = checked_stop(stop)
    every = (*settings["stop"], *stop)
    languages = {"source_language": source_language, "target_language": target_language}
    languages = {name: [language] for name, language in languages.items() if language is not None}
    state, shown = model.start(tf.constant([text]), max_new_tokens, **languages), 0
    while True:
        step = model.sample_step if sampling else model.step
        found = step(state, seed, **sampling, stop=stop)
        state, new, is_done = found["state"], found["text"].numpy().decode(), bool(found["done"])
        # The end of a text may begin a stop string.
        begun = (n for one in every for n in range(len(one)) if new.endswith(one[:n]))
        until = len(new) if is_done else len(new) - max(begun, default=0)
        if until > shown:
            yield new[shown:until]
            shown = until
        if is_done:
            return "stop" if found["ended"] else "length"
