"""What the steps of a recipe that train have in common."""

import dataclasses

from tf_transformer.compression.distiller import Distiller
from tf_transformer.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """A step of a recipe that trains a smaller model to imitate the model before the step."""

    epochs: int = 1
    learning_rate: float | None = None
    temperature: float = 2.0
    soft_targets: float = 0.5

    def check(self, *conditions):
        """Check the settings of a subclass and those of all."""
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
        """Return the model to train."""
        if not self.soft_targets and not any(losses.values()):
            return student
        return Distiller(
            student,
            teacher,
            temperature=self.temperature,
            soft_targets=self.soft_targets,
            **losses,
        )
