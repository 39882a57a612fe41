"""A translator of ids, as it is exported.

Axes: B batch, S source length, L maximum target length.
"""

import dataclasses
import functools
import json
import zlib

import tensorflow as tf

from tf_transformer.data import BucketedBatches
from tf_transformer.errors import ArgumentError
from tf_transformer.export.compile_for import SMALL_ROWS, BucketedFunction, bucket_lengths
from tf_transformer.export.loading import cores
from tf_transformer.generation import beam_search, greedy_decode, sample_decode
from tf_transformer.generation.decoding import among_tokens, check_range

_ALL_TOKENS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The settings of `sample_decode` for any number of texts.

    Args:
        seed: int; the same seed and the same texts give the same translations.
        temperature: float above 0; values below 1 favor likely tokens.
        top_k: None, or int of at least 1: only the k most likely tokens.
        top_p: float above 0, at most 1: only the most likely tokens with this total probability.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> Sampling(seed=1, top_k=20).temperature
        1.0
    """

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        check_range("seed", self.seed, 0)
        check_range("temperature", self.temperature, 0.0, above=True)
        check_range("top_k", self.top_k, 1)
        check_range("top_p", self.top_p, 0.0, 1.0, above=True)

    def arguments(self, first):
        """The arguments of `translate_sample` for one batch.

        Args:
            first: int, the number of texts before this batch: each batch draws other numbers.

        Returns:
            dict of scalar tensors.

        Example:
            >>> Sampling(seed=1).arguments(0)["top_p"].numpy()
            np.float32(1.0)
        """
        seed = zlib.crc32(f"{self.seed} {first}".encode()) >> 1  # below 2^31
        return {
            "seed": tf.constant(seed, tf.int32),
            "temperature": tf.constant(self.temperature, tf.float32),
            "top_k": tf.constant(self.top_k or _ALL_TOKENS, tf.int32),
            "top_p": tf.constant(self.top_p, tf.float32),
        }


def calibration_batches(tokenizer, pairs, most=512):
    """Return batches of training pairs that set the ranges of int8 activations."""
    sides = zip(*pairs[:most], strict=True)
    sides = [tokenizer.encode_strings(list(side)).to_list() for side in sides]
    longest = max(len(row) for side in sides for row in side) + 1
    ends = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
    lengths = (*range(8, longest, 8), longest)
    return list(BucketedBatches(*sides, lengths=lengths, tokens_per_batch=1024, **ends).epoch(0))


# A step with fewer rows takes almost as long.
_LEAST_ROWS = 16


def in_parts(decode, ids):
    """Decode a batch in two parts on two cores, in four on four: ids (B, S), B a power of two.

    A decoder step has many small operations, which keep little more than one core busy in XLA
    (benchmarks/decoding/NOTES.md). Rows are assigned in turn, so that the parts of a batch sorted
    by length take the same time. A part has at least 16 rows. A GPU uses one part.
    """
    # Traced once, so that all parts share the programs that XLA compiles.
    signature = [tf.TensorSpec((None, None), ids.dtype)]
    decode = tf.function(decode, input_signature=signature, autograph=False)
    counts = [count for count in (1, 2, 4) if count <= cores()]
    enough = tf.shape(ids)[0] >= [count * _LEAST_ROWS for count in counts[1:]]
    return tf.switch_case(
        tf.math.count_nonzero(enough, dtype=tf.int32),
        [functools.partial(_decode_parts, decode, ids, count) for count in counts],
    )


def _decode_parts(decode, ids, count):
    parts = [decode(ids[first::count]) for first in range(count)]
    return tf.nest.map_structure(_in_turn, *parts)


def _in_turn(*parts):
    rows = tf.stack(parts, axis=1)
    return tf.reshape(rows, tf.concat([[-1], tf.shape(rows)[2:]], 0))


_IDS = tf.TensorSpec((None, None), tf.int32, name="ids")
# The arguments of `sample` after its sources.
CHANCE = (
    tf.TensorSpec((), tf.int32, name="seed"),
    tf.TensorSpec((), tf.float32, name="temperature"),
    tf.TensorSpec((), tf.int32, name="top_k"),
    tf.TensorSpec((), tf.float32, name="top_p"),
)


class IdTranslator(tf.Module):
    """Greedy decoding, beam search and sampling of a Transformer as graph functions.

    A translation has at most a S + b tokens, where S includes the end token of the source, and at
    most as many as the model has positions. Except when sampling, the result of a row does not
    depend on the other rows.

    `warm_up(rows, length)` compiles `greedy` for small batches and `warm_up_beam` compiles `beam`,
    see `BucketedFunction.warm_up`.

    Args:
        model: a built `Transformer` or an `Ensemble`.
        start_id, end_id: int, tokens of the target; the end token is not 0.
        beam_size, length_penalty, n_best: see `beam_search`.
        min_length, no_repeat_ngram: see `greedy_decode`; they apply to every strategy.
        length_limit: two ints, a >= 0 and b >= 1.
        jit_compile: False runs one TensorFlow graph for all shapes, except for the small batches
            that `warm_up` or `warm_up_beam` compiled for. True compiles one program with XLA for
            each bucket, when the first batch falls into it: S is padded to 8, 16, 32 and so on, B
            to a power of two; above 8 rows, and for samples, the caches have room for 16 tokens, 32
            and so on, each with its program. Each takes seconds to compile and then less time per
            token (benchmarks/decoding/NOTES.md). Except for samples, 32 rows or more are decoded in
            parallel parts, see `in_parts`, and B is the size of a part.
        num_tokens: None, or int: the ids from it on have no token and are never chosen.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16)
        >>> model.build()
        >>> translator = IdTranslator(model, 1, 2)
        >>> ids, scores = translator.beam(tf.constant([[5, 6, 2], [7, 2, 0]]))
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
        jit_compile=False,
        num_tokens=None,
    ):
        super().__init__(name="id_translator")
        check_range("end_id", end_id, 1)
        check_range("beam_size", beam_size, 1)
        check_range("length_penalty", length_penalty, 0.0)
        check_range("n_best", n_best, 1, beam_size)
        check_range("min_length", min_length, 0)
        check_range("no_repeat_ngram", no_repeat_ngram, 0)
        if not isinstance(length_limit, tuple | list) or len(length_limit) != 2:
            raise ArgumentError("length_limit", "two numbers, a and b", length_limit)
        for number, least in zip(length_limit, (0, 1), strict=True):
            check_range("length_limit", number, least)
        self._beam = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": n_best}
        self._ends = {"start_id": start_id, "end_id": end_id}
        self._rules = {"min_length": min_length, "no_repeat_ngram": no_repeat_ngram}
        self._length_limit = tuple(length_limit)
        self._num_tokens = num_tokens
        # The settings that change translations, as JSON: tf.Module would track a dict.
        settings = {**self._beam, **self._rules, "length_limit": self._length_limit}
        self.settings = json.dumps(settings)
        # Keep the variables and bound methods, not the model: the weights of a Keras layer tracked
        # here would be saved twice.
        self.weights = [weight.value for weight in model.weights]
        self._resources = getattr(model, "resources", [])  # of `StoredWeights`
        self._reorder, self._resize = model.reorder, model.resize
        self._in_loops = _traced(model, jit_compile)
        self._whole = _traced(model)  # apart, since XLA's form of the attention is another graph
        config = model.get_config()
        self._longest_source, self._longest_target = config["pe_input"], config["pe_target"]
        self._jit_compile = jit_compile
        self._greedy, self._beams = (
            BucketedFunction(
                functools.partial(decode, jit_compile=True),
                functools.partial(self._decode_any, decode),
                _IDS,
                SMALL_ROWS,
                bucket_lengths(self._longest_source),
                at_once=jit_compile,
            )
            for decode in (self._decode_greedily, self._decode_beams)
        )
        # Not a decorator, which would keep only a weak reference to the object.
        self.greedy = tf.function(self.greedy, input_signature=[_IDS], autograph=False)
        self.beam = tf.function(self.beam, input_signature=[_IDS], autograph=False)
        self.sample = tf.function(self.sample, input_signature=[_IDS, *CHANCE], autograph=False)
        self.warm_up, self.warm_up_beam = self._greedy.warm_up, self._beams.warm_up

    def greedy(self, ids):
        """Translate greedily.

        Args:
            ids: int32 tensor (B, S), each row with its end token, then 0; S is at most `pe_input`.

        Returns:
            int32 tensor (B, L), without the end token, 0 after the end.
        """
        return self._greedy(ids)

    def beam(self, ids):
        """Translate with `beam_search`.

        Args:
            ids: see `greedy`.

        Returns:
            `(ids, scores)`: int32 tensor (B, n, L) and float32 tensor (B, n), the best first.
        """
        return self._beams(ids)

    def sample(self, ids, seed, temperature, top_k, top_p):
        """Translate with `sample_decode`.

        Args:
            ids: see `greedy`.
            seed: scalar int32 tensor.
            temperature: scalar float32 tensor, above 0.
            top_k: scalar int32 tensor, at least 1; the vocabulary size or more for all tokens.
            top_p: scalar float32 tensor, above 0, at most 1; 1 for all tokens.

        Returns:
            int32 tensor (B, L), see `greedy`.

        Raises:
            tf.errors.InvalidArgumentError: If a number is out of range.
        """
        chance = {"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        # Not in parts, which would all draw the same random numbers.
        bucket = self._greedy.pad(ids) if self._jit_compile else ids
        step, state = self._model(bucket, 1, self._resize)
        found = sample_decode(
            step,
            state,
            tf.shape(bucket)[0],
            resize=self._resize,
            jit_compile=self._jit_compile,
            **self._bounds(bucket),
            **chance,
        )
        return found[: tf.shape(ids)[0]]

    def _decode_any(self, decode, ids):
        decode = functools.partial(decode, resize=self._resize, jit_compile=self._jit_compile)
        return in_parts(decode, ids) if self._jit_compile else decode(ids)

    def _decode_greedily(self, ids, jit_compile, resize=None):
        step, state = self._model(ids, 1, resize)
        return greedy_decode(
            step,
            state,
            tf.shape(ids)[0],
            resize=resize,
            jit_compile=jit_compile,
            **self._bounds(ids),
        )

    def _decode_beams(self, ids, jit_compile, resize=None):
        step, state = self._model(ids, self._beam["beam_size"], resize)
        return beam_search(
            step,
            state,
            tf.shape(ids)[0],
            reorder=self._reorder,
            resize=resize,
            jit_compile=jit_compile,
            **self._bounds(ids),
            **self._beam,
        )

    def _model(self, ids, beam_size, resize):
        """`step`, and the first state or, without `resize`, a function that makes it."""
        start, step = self._in_loops if resize else self._whole
        step = among_tokens(step, self._num_tokens)
        if resize:
            return step, start(ids, 0, beam_size)  # `resize` makes room in the caches
        return step, lambda: start(ids, self._bounds(ids)["max_length"], beam_size)

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
    start = tf.function(
        model.start,
        input_signature=[_IDS, *(tf.TensorSpec((), tf.int32) for _ in range(2))],
        jit_compile=jit_compile,
        autograph=False,
    )
    # In partials: of a function that it tracks, a tf.Module saves a copy for each trace.
    return tuple(map(functools.partial, (start, tf.function(model.step, autograph=False))))
