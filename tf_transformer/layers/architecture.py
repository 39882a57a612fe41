"""What can differ between Transformers besides their sizes."""

import dataclasses
import difflib
import inspect
import json

from tf_transformer.layers import positions as parts
from tf_transformer.layers.positions.positions import Positions
from tf_transformer.layers.positions.sinusoidal_positions import SinusoidalPositions

_NAMES = [name for name in parts.__all__ if name != "Positions"]
# Of the instance of a layer, not of the choice.
_OF_INSTANCE = ("name", "trainable", "dtype")


@dataclasses.dataclass(frozen=True, eq=False)
class Architecture:
    """The choices that a Transformer leaves open, each a part.

    A model copies the parts, so one architecture can serve many models.

    Args:
        positions: a part of `layers.positions`.

    Raises:
        ValueError: If `positions` is not a part.

    Example:
        >>> from tf_transformer.layers.positions import RotaryPositions
        >>> choice = Architecture(positions=RotaryPositions(base=500.0))
        >>> Architecture.from_json(choice.to_json()) == choice
        True
    """

    positions: Positions = dataclasses.field(default_factory=SinusoidalPositions)

    def __post_init__(self):
        if not isinstance(self.positions, Positions):
            raise ValueError(
                f"positions: expected a part of layers.positions, such as RotaryPositions(), got "
                f"{self.positions!r}."
            )

    def __eq__(self, other):
        return isinstance(other, Architecture) and self.to_dict() == other.to_dict()

    def __hash__(self):
        return hash(self.to_json())

    def to_dict(self):
        """Return the choices as a dict that JSON can hold.

        Example:
            >>> Architecture().to_dict()
            {'positions': {'part': 'SinusoidalPositions'}}
        """
        config = self.positions.get_config()
        settings = {k: v for k, v in config.items() if k not in _OF_INSTANCE}
        return {"positions": {"part": type(self.positions).__name__, **settings}}

    def to_json(self):
        """Return the choices as a JSON text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, config):
        """Make an architecture from what `to_dict` returned.

        Args:
            config: dict; what it leaves out keeps its default.

        Returns:
            `Architecture`.

        Raises:
            ValueError: If a field, a part or a setting of a part is unknown.

        Example:
            >>> Architecture.from_dict({"positions": {"part": "NoPositions"}}).to_json()
            '{"positions": {"part": "NoPositions"}}'
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        for name in config:
            if name not in fields:
                raise ValueError(
                    f"architecture: expected fields among {', '.join(fields)}, got "
                    f"{name!r}{_nearest(name, fields)}."
                )
        return cls(**{name: _part(name, value) for name, value in config.items()})

    @classmethod
    def from_json(cls, text):
        """Make an architecture from what `to_json` returned; see `from_dict`."""
        return cls.from_dict(json.loads(text))


def _part(field, config):
    if not isinstance(config, dict):
        raise ValueError(f'{field}: expected {{"part": NAME, ...}}, got {config!r}.')
    config = dict(config)
    name = config.pop("part", None)
    if name not in _NAMES:
        raise ValueError(
            f"{field}: expected a part among {', '.join(_NAMES)}, got {name!r}"
            f"{_nearest(str(name), _NAMES)}."
        )
    part = getattr(parts, name)
    settings = [x for x in inspect.signature(part).parameters if x not in ("args", "kwargs")]
    for setting in config:
        if setting not in settings:
            raise ValueError(
                f"{field}: expected settings of {name} among {', '.join(settings) or 'none'}, got "
                f"{setting!r}{_nearest(setting, settings)}."
            )
    return part(**config)


def _nearest(name, names):
    close = difflib.get_close_matches(name, names, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def with_architecture(config):
    """Return a config with its `architecture` as an object, for `from_config`.

    Args:
        config: dict; `architecture` may be missing or None.

    Returns:
        dict.

    Example:
        >>> with_architecture({"architecture": Architecture().to_dict()})["architecture"].to_json()
        '{"positions": {"part": "SinusoidalPositions"}}'
    """
    choice = config.get("architecture")
    return {**config, "architecture": choice and Architecture.from_dict(choice)}
