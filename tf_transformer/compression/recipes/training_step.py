"""What the steps of a recipe that train have in common."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """A step of a recipe that trains.

    Args:
        epochs: int, passes over the training data.
        learning_rate: float, the peak; None for the default of the kind of model.

    Example:
        >>> TrainingStep(epochs=2).epochs
        2
    """

    epochs: int = 1
    learning_rate: float | None = None

    def check(self, *conditions):
        """Check the settings of a subclass and those of all.

        Args:
            *conditions: tuples `(name, expected, holds)`.

        Raises:
            ValueError: If one does not hold.
        """
        rate = self.learning_rate
        for name, expected, holds in (
            *conditions,
            ("epochs", "at least 1", self.epochs >= 1),
            ("learning_rate", "a positive number", rate is None or rate > 0),
        ):
            if not holds:
                raise ValueError(f"{name}: expected {expected}, got {getattr(self, name)!r}.")
