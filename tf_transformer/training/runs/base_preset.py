"""Base class of the presets."""

import dataclasses
import typing

from tf_transformer.errors import ArgumentError

_LONGEST = 1_000_000


@dataclasses.dataclass(frozen=True)
class BasePreset:
    """Settings of a training run."""

    name: str
    epochs: int
    lengths: tuple
    accumulate: int = 1

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        for name in ("epochs", "accumulate"):
            if getattr(self, name) < 1:
                raise ArgumentError(name, "at least 1", getattr(self, name))
        object.__setattr__(self, "lengths", tuple(self.lengths))  # JSON gives a list
        if (
            not self.lengths
            or not all(isinstance(length, int) for length in self.lengths)
            or list(self.lengths) != sorted(set(self.lengths))
            or not 1 <= self.lengths[0] <= self.lengths[-1] <= _LONGEST
        ):
            raise ArgumentError("lengths", f"increasing ints from 1 to {_LONGEST:,}", self.lengths)

    def with_changes(self, changes):
        """A copy with some fields changed; values of None are ignored."""
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes)


def _check_type(field, value):
    """Raise ValueError unless a value, which may come from JSON, is of the type of its field."""
    wanted = typing.get_args(field.type) or (field.type,)
    others = {float: (int,), tuple: (list,), list: (tuple,)}
    allowed = (*wanted, *(other for kind in wanted for other in others.get(kind, ())))
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in wanted):
        names = " or ".join(kind.__name__.replace("NoneType", "None") for kind in wanted)
        raise ArgumentError(field.name, names, f"{value!r}")
