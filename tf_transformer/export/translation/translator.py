"""Translators of ids and of strings, as they are exported.

A call passes through `Translator.translate` (texts to ids), `IdTranslator.greedy`, which is a
`BucketedFunction` (compile_for.py: XLA's program for a small batch, else the plain function, with
`jit_compile` through `in_parts`), `IdTranslator._decode` (limits and caches), `greedy_decode` and
its `decode_loop` (generation/decoding.py), which calls `model.step` (models/base_model.py).

Axes: B batch, S source length, L maximum target length, D model width.
"""

import functools
import json

import tensorflow as tf

from tf_transformer.data.preparing import processors
from tf_transformer.errors import check
from tf_transformer.export.compile_for import (
    SIZES,
    SMALL_ROWS,
    BucketedFunction,
    bucket_lengths,
    signature,
    traced,
    warm_up_texts,
)
from tf_transformer.export.saving import CHANCE, SEED, TEXTS, save_module
from tf_transformer.functional.attention.masks import create_padding_mask
from tf_transformer.functional.tensors import check_range, has_accelerator
from tf_transformer.generation import beam_search, greedy_decode, sample_decode
from tf_transformer.generation.decoding import without_unused_ids
from tf_transformer.generation.rules import IMPOSSIBLE
from tf_transformer.models.base_model import check_padding, check_vocabulary

_IDS = tf.TensorSpec((None, None), tf.int32, name="ids")
# A step with fewer rows takes almost as long.
_LEAST_ROWS = 16


class Translator(tf.Module):
    """A trained Transformer with its tokenizer, built from core TensorFlow operations.

    After `save`, it loads in a process that has only TensorFlow. Sources longer than the model's
    position table are truncated. A blank text gives an empty translation. `warm_up(rows, length)`
    compiles `translate` for small batches and `warm_up_beam` compiles `translate_beam`, see
    `BucketedFunction.warm_up`.

    Args:
        model: a built `Transformer` with a row for each token, or an `Ensemble` of such models,
            which has no `encode`. Ids of further rows are never chosen.
        tokenizer: a `GraphTokenizer` whose padding is the id 0, or the one of `load_transformer`.
        **decoding: `beam_size`, `length_penalty`, `n_best`, `min_length`, `no_repeat_ngram`,
            `length_limit` (by default 2 S + 10 tokens), `jit_compile` of `IdTranslator`.

    Raises:
        ValueError: If the tokenizer has more tokens than the model, its padding id is not 0, or a
            number is out of range.

    Example:
        >>> from tf_transformer.export import load_transformer, shipped_model
        >>> translator = Translator(*load_transformer(shipped_model("en-zh")), beam_size=3)
        >>> translator.translate(["Thank you."]).numpy()[0].decode()
        '谢谢你。'
    """

    def __init__(self, model, tokenizer, **decoding):
        super().__init__(name="translator")
        check_vocabulary(model, tokenizer)
        expected = "the id 0 for padding, which the masks block"
        remedy = "Train a vocabulary with this package."
        check(tokenizer.pad_id == 0, "tokenizer", expected, tokenizer.pad_id, remedy)
        self.tokenizer, self._end_id = tokenizer, tokenizer.end_id
        decoding["num_tokens"] = tokenizer.vocab_size
        self.decoding = IdTranslator(model, tokenizer.start_id, self._end_id, **decoding)
        self.weights = self.decoding.weights
        # Variables: a SavedModel does not restore other attributes.
        self.settings = tf.Variable(self.decoding.settings, trainable=False)
        self.num_tokens = tf.Variable(tokenizer.vocab_size, trainable=False)
        self._longest_source = model.get_config()["pe_input"]
        self.translate = traced(self.translate, TEXTS)
        self.translate_beam = traced(self.translate_beam, TEXTS)
        self.translate_sample = traced(self.translate_sample, TEXTS, SEED, *CHANCE)
        self.warm_up, self.warm_up_beam = self.decoding.warm_up, self.decoding.warm_up_beam
        self.encode = None
        if hasattr(model, "encoder"):  # an ensemble has one for each model
            self._encoder_call = model.encoder.__call__  # the method alone: see `IdTranslator`
            self.encode = traced(self._encode, TEXTS)

    def translate(self, text):
        """Translate greedily: string (B,) -> string (B,)."""
        source, is_blank = self._source(text)
        return tf.where(is_blank, "", self.tokenizer.decode_ids(self.decoding.greedy(source)))

    def translate_beam(self, text):
        """Translate with `beam_search`: string (B,) -> `translations` string (B, n), the best
        first, `scores` float32 (B, n); "" and -inf where there are fewer, "", 0 for a blank text.
        """
        source, is_blank = self._source(text)
        ids, scores = self.decoding.beam(source)
        rows = tf.reshape(ids, (-1, tf.shape(ids)[2]))
        translations = tf.reshape(self.tokenizer.decode_ids(rows), tf.shape(scores))
        is_blank = tf.expand_dims(is_blank, 1)
        certain = tf.where(tf.range(tf.shape(scores)[1]) == 0, 0.0, IMPOSSIBLE)
        translations = tf.where(is_blank, "", translations)
        return {"translations": translations, "scores": tf.where(is_blank, certain, scores)}

    def translate_sample(self, text, seed, temperature, top_k, top_p):
        """Translate with `sample_decode`: string (B,) -> string (B,); see `IdTranslator.sample`."""
        source, is_blank = self._source(text)
        ids = self.decoding.sample(source, seed, temperature, top_k, top_p)
        return tf.where(is_blank, "", self.tokenizer.decode_ids(ids))

    def _encode(self, text):
        """Run the encoder: string (B,) -> `ids` int32 (B, S), `vectors` float (B, S, D)."""
        source, _ = self._source(text)
        mask = create_padding_mask(source)
        vectors = self._encoder_call(source, training=False, mask=mask)
        return {"ids": source, "vectors": vectors}

    def _source(self, text):
        """string (B,) -> ids int32 (B, S) with end tokens, and which texts are blank, bool (B,)."""
        ids = self.tokenizer.encode_strings(text)[:, : self._longest_source - 1]
        ends = tf.fill((tf.shape(text)[0], 1), self._end_id)
        ids = tf.concat([ids, ends], axis=1)  # ragged (B, (S))
        return ids.to_tensor(), tf.equal(ids.row_lengths(), 1)

    def save(self, path):
        """Write a SavedModel with the signatures `serving_default`, `translate`, `translate_beam`,
        `translate_sample`, `warm_up`, `warm_up_beam` and, except for an ensemble, `encode`, and
        data for TensorFlow Serving, in place of one; FileExistsError for other content.
        """
        translate = signature("translation", self.translate, TEXTS)
        sample = signature("translation", self.translate_sample, TEXTS, SEED, *CHANCE)
        signatures = {
            "serving_default": translate,
            "translate": translate,
            "translate_beam": self.translate_beam,
            "translate_sample": sample,
            "warm_up": signature("programs", self.warm_up, *SIZES),
            "warm_up_beam": signature("programs", self.warm_up_beam, *SIZES),
        }
        if self.encode is not None:
            signatures["encode"] = self.encode
        save_module(self, path, signatures, warm_up_texts(self._longest_source))


class IdTranslator(tf.Module):
    """Greedy decoding, beam search and sampling of a Transformer as graph functions.

    `greedy(ids)` maps int32 (B, S), each row with its end token, then 0, where S is at most
    `pe_input`, to int32 (B, L), without the end token, 0 after the end. `beam(ids)` uses
    `beam_search` and returns `(ids, scores)`, int32 (B, n, L) and float32 (B, n), the best first.
    `warm_up(rows, length)` compiles `greedy` for small batches and `warm_up_beam` compiles `beam`,
    see `BucketedFunction.warm_up`. A translation has at most a S + b tokens, where S includes the
    end token of the source, and at most as many as the model has positions. Except when sampling,
    the result of a row does not depend on the other rows.

    Args:
        model: a built `Transformer` or an `Ensemble`.
        start_id, end_id: int, tokens of the target; the end token is not 0.
        beam_size, length_penalty, n_best: see `beam_search`.
        min_length, no_repeat_ngram: see `greedy_decode`; they apply to every strategy.
        length_limit: two ints, a >= 0 and b >= 1.
        jit_compile: bool, or None for True where TensorFlow sees a GPU or TPU. False runs one
            TensorFlow graph for all shapes, except for the small batches that `warm_up` or
            `warm_up_beam` compiled for. True compiles one program with XLA for each bucket, when
            the first batch falls into it: S is padded to 8, 16, 32 and so on, B to a power of two;
            above 8 rows, and for samples, the caches have room for 16 tokens, 32 and so on, each
            with its program (benchmarks/decoding/NOTES.md). Except for samples, 32 rows or more are
            decoded in parallel parts on a CPU, and B is the size of a part.
        num_tokens: None, or int: the ids from it on have no token and are never chosen.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16)
        >>> model.build()
        >>> ids, scores = IdTranslator(model, 1, 2).beam(tf.constant([[5, 6, 2], [7, 2, 0]]))
        >>> ids.shape.as_list()[:2], scores.shape.as_list()
        ([2, 1], [2, 1])
    """

    def __init__(
        self,
        model,
        start_id,
        end_id,
        *,
        beam_size=5,
        length_penalty=0.6,
        n_best=1,
        min_length=0,
        no_repeat_ngram=0,
        length_limit=(2, 10),
        jit_compile=None,
        num_tokens=None,
    ):
        super().__init__(name="id_translator")
        check_padding(model)
        check_range("end_id", end_id, 1)
        check_range("beam_size", beam_size, 1)
        check_range("length_penalty", length_penalty, 0.0)
        check_range("n_best", n_best, 1, beam_size)
        check_range("min_length", min_length, 0)
        check_range("no_repeat_ngram", no_repeat_ngram, 0)
        is_pair = isinstance(length_limit, tuple | list) and len(length_limit) == 2
        check(is_pair, "length_limit", "two numbers, a and b", length_limit)
        for number, least in zip(length_limit, (0, 1), strict=True):
            check_range("length_limit", number, least)
        jit_compile = has_accelerator() if jit_compile is None else jit_compile
        beam = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": n_best}
        self._ends = {"start_id": start_id, "end_id": end_id}
        self._rules = {"min_length": min_length, "no_repeat_ngram": no_repeat_ngram}
        self._length_limit, self._num_tokens = tuple(length_limit), num_tokens
        # The settings that change translations, as JSON: tf.Module would track a dict.
        self.settings = json.dumps({**beam, **self._rules, "length_limit": self._length_limit})
        # Not the model: the weights of a Keras layer tracked here would be saved twice.
        self.weights = [weight.value for weight in model.weights]
        self._resources = getattr(model, "resources", [])  # of `StoredWeights`
        self._resize, self._jit_compile = model.resize, jit_compile
        # `start` and `step`, traced anew for caches of the full size: XLA compiles their callers,
        # and inside such a program attention is another graph, see `use_xla`.
        self._growing, self._full_size = _traced(model, jit_compile), _traced(model)
        config = model.get_config()
        self._longest_source, self._longest_target = config["pe_input"], config["pe_target"]
        self._greedy = self._bucketed(greedy_decode)
        self._beams = self._bucketed(beam_search, reorder=model.reorder, **beam)
        self.greedy = traced(self._greedy.__call__, _IDS)
        self.beam = traced(self._beams.__call__, _IDS)
        self.sample = traced(self.sample, _IDS, SEED, *CHANCE)
        self.warm_up, self.warm_up_beam = self._greedy.warm_up, self._beams.warm_up

    def sample(self, ids, seed, temperature, top_k, top_p):
        """Translate with `sample_decode`: ids as in `greedy` and scalar tensors, int32 `seed` and
        `top_k` (the vocabulary size or more for all tokens), float32 `temperature` and `top_p` (1
        for all tokens) -> int32 (B, L). InvalidArgumentError if a number is out of range.
        """
        # Not in parts, which would all draw the same random numbers.
        bucket = self._greedy.pad(ids) if self._jit_compile else ids
        chance = {"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        found = self._decode(sample_decode, bucket, self._jit_compile, self._resize, **chance)
        return found[: tf.shape(ids)[0]]

    def _bucketed(self, strategy, **options):
        """A strategy for batches of ids, with programs of XLA for small ones."""
        decode = functools.partial(self._decode, strategy, **options)
        plain = functools.partial(decode, jit_compile=self._jit_compile, resize=self._resize)
        if self._jit_compile:
            plain = functools.partial(in_parts, plain)
        buckets = SMALL_ROWS, bucket_lengths(self._longest_source)
        by_xla = functools.partial(decode, jit_compile=True)
        return BucketedFunction(by_xla, plain, _IDS, *buckets, at_once=self._jit_compile)

    def _decode(self, strategy, ids, jit_compile, resize=None, **options):
        """Decode ids (B, S), with caches that grow by `resize`, or of the maximum size."""
        start, step = self._growing if resize else self._full_size

        def state():  # called in XLA's program, where the maximum length is a constant
            room = 0 if resize else self._bounds(ids)["max_length"]  # `resize` makes it
            return start(ids, room, options.get("beam_size", 1))

        step = without_unused_ids(step, self._num_tokens)
        options = {**self._bounds(ids), **options, "resize": resize, "jit_compile": jit_compile}
        return strategy(step, state, tf.shape(ids)[0], **options)

    def _bounds(self, ids):
        # A limit per sentence, not per batch: a result must not depend on the other rows.
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)  # (B,)
        factor, offset = self._length_limit
        longest = tf.minimum(factor * tf.shape(ids)[1] + offset, self._longest_target)
        # A row of padding, which fills up a bucket, ends at once.
        limits = tf.where(tf.equal(lengths, 0), 1, tf.minimum(factor * lengths + offset, longest))
        return {**self._ends, **self._rules, "limits": limits, "max_length": longest}


def _traced(model, jit_compile=False):
    """`start` and `step`, traced once for all strategies, which makes loading faster."""
    signature = [_IDS, tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.int32)]
    options = {"jit_compile": jit_compile, "autograph": False}
    start = tf.function(model.start, input_signature=signature, **options)
    # In partials: of a function that it tracks, a tf.Module saves a copy for each trace.
    return tuple(map(functools.partial, (start, tf.function(model.step, autograph=False))))


def in_parts(decode, ids):
    """Decode a batch in two parts on two cores, in four on four: ids (B, S), B a power of two."""
    # A decoder step has many small operations, which keep little more than one core busy in XLA
    # (benchmarks/decoding/NOTES.md). Rows are assigned in turn, so that the parts of a batch sorted
    # by length take the same time. Traced once, so that all parts share the compiled programs. The
    # counts are chosen while tracing, so an export keeps those of the machine that wrote it.
    decode = traced(decode, tf.TensorSpec((None, None), ids.dtype))

    def decoded(count):
        parts = [decode(ids[first::count]) for first in range(count)]
        return tf.nest.map_structure(_in_turn, *parts)

    counts = [count for count in (1, 2, 4) if count <= cores()]
    enough = tf.shape(ids)[0] >= [count * _LEAST_ROWS for count in counts[1:]]
    branches = [functools.partial(decoded, count) for count in counts]
    return tf.switch_case(tf.math.count_nonzero(enough, dtype=tf.int32), branches)


def _in_turn(*parts):
    rows = tf.stack(parts, axis=1)
    return tf.reshape(rows, tf.concat([[-1], tf.shape(rows)[2:]], 0))


def cores():
    """Return the number of cores that this process may use, or 1 if there is a GPU."""
    return 1 if tf.config.list_physical_devices("GPU") else processors()
