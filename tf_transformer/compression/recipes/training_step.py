"""What the steps of a recipe that train have in common."""

import dataclasses

from tf_transformer.compression.distiller import Distiller
from tf_transformer.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """A step of a recipe that trains a smaller model to imitate the model before the step.

    Args:
        epochs: int, passes over the training data.
        learning_rate: float, the peak; None for the default of the kind of model.
        temperature, soft_targets: see `Distiller`; with `soft_targets=0` it learns from the data
            alone.

    Example:
        >>> TrainingStep(epochs=2).epochs
        2
    """

    epochs: int = 1
    learning_rate: float | None = None
    temperature: float = 2.0
    soft_targets: float = 0.5

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
            ("temperature", "a number above 0", self.temperature > 0),
            ("soft_targets", "a number in [0, 1]", 0 <= self.soft_targets <= 1),
        ):
            if not holds:
                raise ArgumentError(name, expected, f"{getattr(self, name)!r}")

    def distiller(self, student, teacher, **losses):
        """Return the model to train.

        Args:
            student: the smaller model.
            teacher: the model before the step.
            **losses: further arguments of `Distiller`.

        Returns:
            `Distiller` of both, or the student if the teacher has no say.

        Raises:
            ValueError: See `Distiller`.
        """
        if not self.soft_targets and not any(losses.values()):
            return student
        return Distiller(
            student,
            teacher,
            temperature=self.temperature,
            soft_targets=self.soft_targets,
            **losses,
        )
