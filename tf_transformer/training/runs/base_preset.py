"""Base class of the presets."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BasePreset:
    """Settings of a training run.

    Args:
        name: str, the name of the preset.
        epochs: int, the maximum number of passes over the data.
        lengths: ints, the bucket lengths; the last one is the maximum text length.
        accumulate: int, the parts in which the gradient of a batch is computed, to save memory; see
            `accumulate_gradients`.

    Raises:
        ValueError: If the number of epochs or parts is below 1 or the lengths do not increase.

    Example:
        >>> BasePreset("mine", epochs=3, lengths=[8, 16]).lengths
        (8, 16)
    """

    name: str
    epochs: int
    lengths: tuple
    accumulate: int = 1

    def __post_init__(self):
        for name in ("epochs", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}.")
        object.__setattr__(self, "lengths", tuple(self.lengths))  # JSON gives a list
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths: expected increasing ints, got {self.lengths}.")

    def with_changes(self, changes):
        """A copy with some fields changed; values of None are ignored.

        Args:
            changes: dict, field name to new value or None.

        Returns:
            A preset of the same class.

        Raises:
            ValueError: Same as for the class.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes)
