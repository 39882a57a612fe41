"""Architectural choices of a Transformer besides its sizes, and the layers of a stack."""

import dataclasses
import inspect
import json

import keras

from tf_transformer.errors import ArgumentError, check, did_you_mean
from tf_transformer.json_text import parse_json
from tf_transformer.layers import feed_forwards, norms, positions, residuals
from tf_transformer.layers.base_layer import NotesLayer, attributes
from tf_transformer.layers.feed_forwards import FeedForward
from tf_transformer.layers.multi_head_attention import MultiHeadAttention, check_bias
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.layers.positions import Positions, SinusoidalPositions
from tf_transformer.layers.residuals import PostNorm, Residual


def check_layer_sizes(layer_sizes, num_layers, names):
    """Return the sizes of each layer of a stack as a tuple of tuples."""

    def fits(layer):
        return len(layer) == len(names) and all(type(size) is int and size > 0 for size in layer)

    try:
        sizes = tuple(map(tuple, layer_sizes))
        if len(sizes) == num_layers and all(map(fits, sizes)):
            return sizes
    except TypeError:
        pass
    expected = f"({', '.join(names)}), positive ints, for each of the {num_layers} layers"
    raise ArgumentError("layer_sizes", expected, f"{layer_sizes!r}")


# Where the parts of each field are, and what they are instances of.
_PARTS = {
    "positions": (positions, Positions),
    "norm": (norms, keras.layers.Layer),
    "residual": (residuals, Residual),
    "feed_forward": (feed_forwards, FeedForward),
}
_BASES = (Positions, Residual)  # no parts themselves
# Settings of a layer instance, not of the architecture.
_OF_INSTANCE = ("name", "trainable", "dtype")


@dataclasses.dataclass(frozen=True, eq=False)
class Architecture:
    """The architectural choices of a Transformer; the defaults are the paper's.

    A model copies the parts, so one architecture can serve many models. A model without one uses
    `Positional_Encoding`, a table of the codes of the default positions.

    Args:
        positions: a part of `layers.positions`, how a model represents the order of tokens.
        norm: a part of `layers.norms`.
        residual: a part of `layers.residuals`, how a sublayer is joined to its input.
        feed_forward: a part of `layers.feed_forwards`.
        key_dim, num_key_value_heads: None or int, see `MultiHeadAttention`.
        share_qk, window: bool, and None or int, see `MultiHeadAttention`; only in self-attention.
        num_groups: None, or int, the number of different layers in a stack: adjacent layers share
            weights. Lan et al. 2020, "ALBERT", section 3.1.
        embedding_size: None, or int below the model width: the width of the word vectors, see
            `FactorizedEmbedding`.
        attention_bias: which projections of attention have a bias, see `use_bias` of
            `MultiHeadAttention`; for those of the feed-forward network see the part.
        scale_embeddings: bool, whether word vectors are multiplied by sqrt(D), as in the paper.
        embedding_norm: bool, whether `norm` is also applied to the embeddings, as in BART.

    Raises:
        ValueError: If a part is of another kind.

    Example:
        >>> from tf_transformer.layers.positions import RotaryPositions
        >>> choice = Architecture(positions=RotaryPositions(base=500.0), num_key_value_heads=1)
        >>> Architecture.from_json(choice.to_json()) == choice
        True
    """

    positions: Positions = dataclasses.field(default_factory=SinusoidalPositions)
    norm: keras.layers.Layer = dataclasses.field(default_factory=LayerNorm)
    residual: Residual = dataclasses.field(default_factory=PostNorm)
    feed_forward: FeedForward = dataclasses.field(default_factory=FeedForward)
    key_dim: int | None = None
    num_key_value_heads: int | None = None
    share_qk: bool = False
    window: int | None = None
    num_groups: int | None = None
    embedding_size: int | None = None
    attention_bias: bool | str = True
    scale_embeddings: bool = True
    embedding_norm: bool = False

    def __post_init__(self):
        for field, (home, kind) in _PARTS.items():
            part = getattr(self, field)
            if not isinstance(part, kind):
                where = home.__name__.removeprefix("tf_transformer.")
                expected = f"a part of {where}, such as {home.__all__[0]}()"
                raise ArgumentError(field, expected, f"{part!r}")
        if not {"training", "tokens"} <= set(inspect.signature(self.norm.call).parameters):
            expected = "a layer with call(inputs, training, tokens), such as LayerNorm()"
            raise ArgumentError("norm", expected, f"{self.norm!r}")
        sizes = ("key_dim", "num_key_value_heads", "window", "num_groups", "embedding_size")
        for field, size in attributes(self, *sizes).items():
            is_size = size is None or (type(size) is int and size >= 1)
            check(is_size, field, "None or a positive int", f"{size!r}")
        check_bias("attention_bias", self.attention_bias)
        flags = attributes(self, "share_qk", "scale_embeddings", "embedding_norm")
        for field, flag in flags.items():
            check(isinstance(flag, bool), field, "True or False", f"{flag!r}")

    def new_norm(self, name, dtype=None):
        """Create a layer like `norm`, with this name and dtype policy."""
        config = {**self.norm.get_config(), "name": name}
        return type(self.norm).from_config(config if dtype is None else {**config, "dtype": dtype})

    def self_attention(self, d_model, num_heads, positions=None, **options):
        """Create a layer of self-attention; `positions` is a part that layers share, or None.

        Raises:
            ValueError: If `positions` is not like `self.positions`.
        """
        if positions is None:
            positions = self.positions.copy(options.get("dtype")).for_layer()
        elif _described(positions) != _described(self.positions):
            expected = f"None or a part like the architecture's, {_described(self.positions)}"
            remedy = "Pass Architecture(positions=...)."
            raise ArgumentError("positions", expected, _described(positions), remedy)
        heads = attributes(self, "share_qk", "window")
        return self.cross_attention(d_model, num_heads, positions=positions, **heads, **options)

    def cross_attention(self, d_model, num_heads, **options):
        """Create a layer of attention to another sequence."""
        heads = attributes(self, "key_dim", "num_key_value_heads")
        heads["use_bias"] = self.attention_bias
        return MultiHeadAttention(d_model, num_heads, **heads, **options)

    def __eq__(self, other):
        return isinstance(other, Architecture) and self.to_dict() == other.to_dict()

    def __hash__(self):
        return hash(self.to_json())

    def to_dict(self):
        """Return the choices as a JSON-serializable dict."""
        values = attributes(self, *(field.name for field in dataclasses.fields(self)))
        return {name: _described(v) if name in _PARTS else v for name, v in values.items()}

    def to_json(self):
        """Return the choices as a JSON string."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, config):
        """Create an architecture from a dict like that of `to_dict`; missing fields have defaults.

        Raises:
            ValueError: If a field, a part or a setting of a part is unknown.
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(config, dict):
            raise ArgumentError("architecture", f"a dict of {', '.join(fields)}", f"{config!r}")
        _check_known("architecture", "fields", config, fields)
        return cls(**{k: _part(k, v) if k in _PARTS else v for k, v in config.items()})

    @classmethod
    def from_json(cls, text):
        """Create an architecture from what `to_json` returned; see `from_dict`."""
        try:
            config = parse_json(text)
        except json.JSONDecodeError as error:
            raise ArgumentError("architecture", "JSON", error) from None
        return cls.from_dict(config)


def _described(part):
    """The name and the settings of a part."""
    kind = type(part)
    if isinstance(part, keras.layers.Layer):
        config = {k: v for k, v in part.get_config().items() if k not in _OF_INSTANCE}
    else:
        config = dataclasses.asdict(part)
    for name, value in config.items():
        check(not callable(value), name, "a name, which a file can hold", f"{value!r}")
    return {"part": kind.__name__, **config}


def _check_known(argument, what, names, known):
    """Refuse the first name that is not known."""
    for name in names:
        if name not in known:
            expected = f"{what} among {', '.join(known) or 'none'}"
            raise ArgumentError(argument, expected, f"{name!r}{did_you_mean(name, known)}")


def _part(field, config):
    check(isinstance(config, dict), field, '{"part": NAME, ...}', f"{config!r}")
    config = dict(config)
    name, (home, _) = config.pop("part", None), _PARTS[field]
    names = [name for name in home.__all__ if getattr(home, name) not in _BASES]
    _check_known(field, "a part", [name], names)
    part = getattr(home, name)
    settings = [x for x in inspect.signature(part).parameters if x not in ("args", "kwargs")]
    _check_known(field, f"settings of {name}", config, settings)
    try:
        return part(**config)
    except TypeError as error:  # a setting of the wrong type, or a missing one
        raise ArgumentError(field, f"settings of {name}", f"{config!r}: {error}") from None


class HasArchitecture(NotesLayer):
    """Mixin for layers and models whose config has their `architecture`, which may be None."""

    def get_config(self):
        """See `keras.layers.Layer`."""
        choice = self.architecture and self.architecture.to_dict()
        return {**super().get_config(), "architecture": choice}

    @classmethod
    def from_config(cls, config):
        """See `keras.layers.Layer`."""
        choice = config.get("architecture")
        return cls(**{**config, "architecture": choice and Architecture.from_dict(choice)})
