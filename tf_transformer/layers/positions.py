"""Representations of positions: parts of an `Architecture`.

Axes: B batch, N heads, T queries, S keys, D model width or distances, H head width.
"""

from numbers import Integral

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.functional.attention.blocks import larger
from tf_transformer.functional.attention.by_distance import ByDistance
from tf_transformer.functional.positions import (
    PAIRINGS,
    alibi_slopes,
    get_angles,
    rotate,
    sines_and_cosines,
    sinusoidal_positions,
    t5_buckets,
)
from tf_transformer.functional.tensors import shape_of
from tf_transformer.layers.base_layer import NotesLayer, attributes

__all__ = [
    "AlibiPositions",
    "LearnedPositions",
    "NoPositions",
    "Positional_Encoding",
    "Positions",
    "RotaryPositions",
    "ShawPositions",
    "SinusoidalPositions",
    "T5Positions",
]


@keras.saving.register_keras_serializable(package="tf_transformer")
class Positions(NotesLayer, keras.layers.Layer):
    """Base class of the parts that give a model the order of its tokens.

    A part overrides what it needs: `add` for codes that are added to the embeddings, `rotate` and
    `by_distance` for self-attention. A stack of layers has one part; attention builds it with the
    shape of its heads, (B, N, T, H), and embeddings build a part that overrides `add` with their
    own, (B, T, D). `max_position` is None or the number of positions that it supports. Without
    `counts_padding`, `add` also gets `tokens`, None or bool (B, T), False for padding.

    Example:
        >>> class Reversed(Positions):
        ...     def add(self, x, start=0):
        ...         return x[:, ::-1]
        >>> Reversed().add(tf.constant([[1, 2]])).numpy().tolist()
        [[2, 1]]
    """

    max_position = None
    counts_padding = True

    def add(self, x, start=0):
        """Add codes to embeddings (B, T, D) whose first token is at `start`, int or int32 ()."""
        return x

    def rotate(self, heads, positions):
        """Transform queries or keys (B, N, T, H) according to their positions, int32 (T,)."""
        return heads

    def by_distance(self, q, num_keys, causal):
        """What depends on the distance of key and query: None, or a `ByDistance`."""
        return None

    def for_layer(self):
        """Return the part for the attention of one more layer: None, this one or a new one."""
        return self if self.in_attention else None

    def copy(self, dtype=None, name=None):
        """Return a new part with the same settings, but this `name` and, if given, dtype policy."""
        config = {**self.get_config(), "name": name}
        if dtype is not None:
            # A part that does not override `get_config` cannot serialize a policy object.
            policy = keras.dtype_policies.get(dtype)
            config["dtype"] = keras.dtype_policies.serialize(policy)
        return type(self).from_config(config)

    @property
    def in_embeddings(self):
        """bool, whether the part adds codes to embeddings."""
        return type(self).add is not Positions.add

    @property
    def in_attention(self):
        """bool, whether the part acts inside self-attention."""
        mine = type(self)
        return mine.rotate is not Positions.rotate or mine.by_distance is not Positions.by_distance

    def call(self, x, start=0):
        return self.add(x, start)


def check_offset(offset):
    """Check the number of the first position."""
    check(type(offset) is int and offset >= 0, "offset", "an int of at least 0", f"{offset!r}")


def part_config(part):
    """Serialize a part for the config of the layer that owns and builds it."""
    config = keras.saving.serialize_keras_object(part)
    if config is not None:
        config.pop("build_config", None)
    return config


def with_part(config):
    """Return a layer's config with its parts deserialized, for `from_config`."""
    names = config.keys() & {"positions", "norm"}
    parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in names}
    return {**config, **parts}


@keras.saving.register_keras_serializable(package="tf_transformer")
class NoPositions(Positions):
    """Ignore the order of tokens, for comparison with the parts that do not.

    Without a mask, permuting the tokens then permutes the outputs of self-attention.

    Example:
        >>> NoPositions().add(tf.ones((1, 2))).numpy().tolist()
        [[1.0, 1.0]]
    """


@keras.saving.register_keras_serializable(package="tf_transformer")
class TablePositions(Positions):
    """Base of the parts that add the rows of a `table`, one for each position."""

    offset = 0  # the row of the first position
    rows = "the size of the table"  # in error messages, as is the remedy
    remedy = "Shorten the sequence or enlarge the table (max_position, pe_input, pe_target)."

    def __init__(self, max_position, **kwargs):
        super().__init__(**kwargs)
        is_integer = isinstance(max_position, Integral) and not isinstance(max_position, bool)
        if not is_integer or max_position < 1:
            raise ArgumentError("max_position", "an integer of at least 1", f"{max_position!r}")
        self.max_position = max_position

    def add(self, x, start=0):
        """See `Positions`: the rows of the table from `start` on."""
        with tf.control_dependencies(self._length_checks(x, start)):
            table = tf.convert_to_tensor(self.table)
            codes = tf.slice(table, (self.offset + start, 0), (tf.shape(x)[1], -1))  # (T, D)
        return x + tf.cast(codes, x.dtype)

    def _length_checks(self, x, start):
        expected = f"at most {self.max_position} positions, {self.rows}"
        if isinstance(start, int) and x.shape[1] is not None:
            end = start + x.shape[1]
            if end > self.max_position:
                raise ArgumentError("x", expected, f"length {end}", self.remedy, place=self.name)
            return []
        message = f"{self.name}: expected {expected}, got more. {self.remedy}"
        end = start + tf.shape(x)[1]
        check = tf.debugging.assert_less_equal(end, self.max_position, message)
        return [] if check is None else [check]  # None in eager mode

    def get_config(self):
        return {**super().get_config(), "max_position": self.max_position}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Positional_Encoding(TablePositions):
    """Add a sinusoidal encoding of its position to every token.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)),
    "Attention Is All You Need", section 3.5. The default of models without an `Architecture`.

    Args:
        max_position: int, the number of positions in the table.

    Call arguments:
        x: float tensor (B, T, D); a ValueError is raised if T is larger than `max_position`.
        start: int or scalar int32 tensor, the position of the first token of `x`.

    Returns:
        (B, T, D), `x` plus the encodings of positions start..start+T-1.

    Example:
        >>> Positional_Encoding().positional_encoding(1, 4).tolist()
        [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(self, max_position=2048, **kwargs):
        super().__init__(max_position, **kwargs)

    def get_angles(self, position, i, d_model):
        """Angles in radians, float64: see `functional.positions.get_angles`."""
        return get_angles(position, i, d_model)

    def positional_encoding(self, position, d_model):
        """Return the table of encodings, a float32 array (1, position, d_model)."""
        return sinusoidal_positions(position, d_model)[np.newaxis]

    def build(self, x_shape):
        self.table = self.positional_encoding(self.max_position, x_shape[-1])[0]

    def _length_checks(self, x, start):
        return super()._length_checks(x, 0)  # decoding, from `start`, checks its length once


@keras.saving.register_keras_serializable(package="tf_transformer")
class SinusoidalPositions(Positions):
    """Add the sines and cosines of `Positional_Encoding`, to texts of any length.

    Args:
        pairing: "interleaved", or "halves": all sines, then all cosines, as in Marian.
        offset: int, at least 0, the number of the first position.
        last_included: bool. True makes the slowest frequency exactly 1 / 10000, with exponents
            i / (D / 2 - 1) for i = 0..D/2-1, as in tensor2tensor and fairseq; False uses 2i / D.
        counts_padding: bool. False numbers only the tokens of a text, wherever its padding is, as
            in M2M100.

    Raises:
        ValueError: If `pairing` is unknown, `offset` is out of range, or the width D is odd.

    Example:
        >>> SinusoidalPositions().add(tf.zeros((1, 1, 4))).numpy().tolist()
        [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(
        self, pairing="interleaved", offset=0, last_included=False, counts_padding=True, **kwargs
    ):
        super().__init__(**kwargs)
        check_choice("pairing", pairing, PAIRINGS)
        check_offset(offset)
        self.pairing, self.offset, self.last_included = pairing, offset, last_included
        self.counts_padding = counts_padding

    def add(self, x, start=0, tokens=None):
        """See `Positions`: sines and cosines of the positions from `start` on."""
        width = x.shape[-1]
        check(width % 2 == 0, "SinusoidalPositions", "an even model width", width)
        exponents = np.arange(0, width, 2) / (width - 2 if self.last_included else width)
        positions = tf.range(tf.shape(x)[1])  # (T,)
        if not self.counts_padding and tokens is not None:
            counts = tf.cumsum(tf.cast(tokens, tf.int32), axis=1)
            positions = tf.maximum(counts - 1, 0)  # (B, T)
        flat = tf.reshape(self.offset + start + positions, (-1,))
        codes = sines_and_cosines(flat, 10000.0**-exponents, x.dtype)  # twice (M, D / 2)
        codes = tf.concat(codes, -1) if self.pairing == "halves" else tf.stack(codes, -1)
        return x + tf.reshape(codes, tf.concat([tf.shape(positions), [width]], 0))

    def get_config(self):
        names = "pairing", "offset", "last_included", "counts_padding"
        return {**super().get_config(), **attributes(self, *names)}


@keras.saving.register_keras_serializable(package="tf_transformer")
class LearnedPositions(TablePositions):
    """Add a learned vector for each position, as BERT does.

    Devlin et al. 2019, "BERT", section 3, figure 2.

    Args:
        max_position: int, the number of positions; if it is below 1, or a text is longer, a
            ValueError is raised.
        offset: int, at least 0, the number of unused rows at the start, as in BART's files.

    Example:
        >>> LearnedPositions(5)(tf.zeros((1, 3, 4))).shape.as_list()
        [1, 3, 4]
    """

    rows = "the learned ones"
    remedy = "Shorten the text, or choose a larger max_position before training."

    def __init__(self, max_position, offset=0, **kwargs):
        super().__init__(max_position, **kwargs)
        check_offset(offset)
        self.offset = offset

    def build(self, x_shape):
        shape = (self.offset + self.max_position, x_shape[-1])
        normal = keras.initializers.TruncatedNormal(stddev=0.02)
        self.table = self.add_weight(shape, initializer=normal, name="table")

    def get_config(self):
        return {**super().get_config(), "offset": self.offset}


@keras.saving.register_keras_serializable(package="tf_transformer")
class RotaryPositions(Positions):
    """Rotate queries and keys by their position, so that scores depend only on the distance.

    Each pair of columns turns by the angle position / stretch / base^(2i / H). Su et al. 2021,
    "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.

    Args:
        base: float, at least 1. For texts longer than in training by a factor f, a base of
            10000 f^(H / (H - 2)) keeps the fastest angles and slows the others.
        stretch: float, above 0: positions are divided by it; f interpolates, Chen et al. 2023.
        pairing: "interleaved", columns 2i and 2i + 1, as in the paper; or "halves", i and
            i + H / 2, as in GPT-NeoX and LLaMA.
        bands: None to stretch all pairs; or `(low, high, length)`, as in Llama 3.1: only those that
            turn less than `low` times over `length` positions, and gradually up to `high` times.

    Raises:
        ValueError: If a number is out of range, `pairing` is unknown, or the head width is odd.

    Example:
        >>> part = RotaryPositions(pairing="halves")
        >>> part.rotate(tf.ones((1, 2, 3, 4)), tf.range(3)).shape.as_list()
        [1, 2, 3, 4]
    """

    def __init__(self, base=10000.0, stretch=1.0, pairing="interleaved", bands=None, **kwargs):
        super().__init__(**kwargs)
        if not (base >= 1 and stretch > 0):  # nor NaN
            raise ArgumentError("base, stretch", "at least 1 and above 0", f"{base} and {stretch}")
        check_choice("pairing", pairing, PAIRINGS)
        if bands is not None and not (len(bands) == 3 and 0 < bands[0] < bands[1] < bands[2]):
            expected = "None, or (low, high, length), positive and ascending"
            raise ArgumentError("bands", expected, f"{bands!r}")
        self.base, self.stretch, self.pairing = base, stretch, pairing
        self.bands = bands and tuple(bands)

    def rotate(self, heads, positions):
        """See `Positions`: the rotated heads."""
        width = heads.shape[-1]
        expected = "an even head width, for pairs of columns"
        remedy = "Choose d_model and num_heads so that d_model / num_heads is even."
        check(width % 2 == 0, "RotaryPositions", expected, width, remedy)
        return rotate(heads, positions, self.base, self.stretch, self.pairing, self.bands)

    def get_config(self):
        return {**super().get_config(), **attributes(self, "base", "stretch", "pairing", "bands")}


@keras.saving.register_keras_serializable(package="tf_transformer")
class ShawPositions(Positions):
    """Add a learned vector to each key and another to each value, for their distance to the query.

    e_ts = q_t (k_s + a^K_{s-t}) / sqrt(H), z_t = sum_s w_ts (v_s + a^V_{s-t}), with distances
    clipped to -m..m, Shaw et al. 2018, equations 3 to 5. The heads of a layer share the vectors.

    Args:
        max_distance: int m; below 1 it raises a ValueError.

    Example:
        >>> part = ShawPositions(max_distance=3)
        >>> part.build((None, 2, None, 4))
        >>> terms = part.by_distance(tf.ones((1, 2, 5, 4)), 5, causal=False)
        >>> terms.keys.shape.as_list(), terms.values.shape.as_list()
        ([7, 4], [7, 4])
    """

    def __init__(self, max_distance, **kwargs):
        super().__init__(**kwargs)
        check(max_distance >= 1, "max_distance", "at least 1", max_distance)
        self.max_distance = max_distance

    def build(self, heads_shape):
        shape = 2 * self.max_distance + 1, heads_shape[-1]
        self.keys, self.values = (
            self.add_weight(shape=shape, initializer="glorot_uniform", autocast=False, name=name)
            for name in ("keys", "values")
        )

    def by_distance(self, q, num_keys, causal):
        """See `Positions`: the vectors of keys and of values."""
        keys, values = (tf.convert_to_tensor(table) for table in (self.keys, self.values))
        return ByDistance(keys=keys, values=values)

    def for_layer(self):
        """Return a new part of the same size: every layer has its own vectors."""
        return self.copy(name=self.name)

    def get_config(self):
        return {**super().get_config(), "max_distance": self.max_distance}


@keras.saving.register_keras_serializable(package="tf_transformer")
class T5Positions(Positions):
    """Add a learned number to each score, chosen by the head and the bucket of the distance.

    Raffel et al. 2020, section 2.1. All layers of a stack share the numbers. Differs from T5:
    attention here divides the products of queries and keys by sqrt(H).

    Args:
        num_buckets: int, even, at least 4.
        max_distance: int, more than half of the buckets: longer distances share a bucket.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> part = T5Positions(num_buckets=8, max_distance=16)
        >>> part.build((None, 2, None, 4))
        >>> part.by_distance(tf.ones((1, 2, 3, 4)), 5, causal=True).scores.shape.as_list()
        [2, 33]
    """

    def __init__(self, num_buckets=32, max_distance=128, **kwargs):
        super().__init__(**kwargs)
        if num_buckets < 4 or num_buckets % 2 or max_distance <= num_buckets // 2:
            expected = "an even number of at least 4, and more than half of it"
            got = f"{num_buckets} and {max_distance}"
            raise ArgumentError("num_buckets, max_distance", expected, got)
        self.num_buckets, self.max_distance = num_buckets, max_distance

    def build(self, heads_shape):
        # No autocast, here and in other parts: scores stay float32 under a mixed-precision policy.
        shape = (heads_shape[1], self.num_buckets)
        normal = keras.initializers.RandomNormal(stddev=0.02)
        options = {"initializer": normal, "autocast": False, "name": "table"}
        self.table = self.add_weight(shape, **options)

    def by_distance(self, q, num_keys, causal):
        """See `Positions`: the numbers of the buckets, up to `max_distance`."""
        distances = np.arange(-self.max_distance, self.max_distance + 1)
        buckets = t5_buckets(distances, self.num_buckets, self.max_distance, causal)
        table = tf.convert_to_tensor(self.table)
        return ByDistance(tf.gather(table, buckets, axis=1))  # (N, D)

    def get_config(self):
        return {**super().get_config(), **attributes(self, "num_buckets", "max_distance")}


@keras.saving.register_keras_serializable(package="tf_transformer")
class AlibiPositions(Positions):
    """Lower each score by its distance times a slope, which differs between heads.

    -m_n |s - t|, Press et al. 2022, "Train Short, Test Long", section 3. Nothing is learned.
    Differs from the paper, which is only causal: keys after the query have the term too.

    Example:
        >>> terms = AlibiPositions().by_distance(tf.ones((1, 2, 3, 4)), 3, causal=False)
        >>> terms.scores[0].numpy().tolist()
        [-0.125, -0.0625, -0.0, -0.0625, -0.125]
    """

    def by_distance(self, q, num_keys, causal):
        """See `Positions`: a constant table, as long as the text."""
        most = larger(larger(shape_of(q)[2], num_keys) - 1, 1)
        distances = tf.abs(tf.range(-most, most + 1))
        slopes = alibi_slopes(q.shape[1])[:, None]  # (N, 1)
        scores = -slopes * tf.cast(distances, tf.float32)  # (N, D)
        return ByDistance(scores, has_gradient=False)
