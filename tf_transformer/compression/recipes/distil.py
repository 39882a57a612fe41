"""The step of a recipe that trains a model with fewer layers."""

import dataclasses
from typing import ClassVar

from tf_transformer.compression.prunable import prunable_stacks
from tf_transformer.compression.pruning import pruned
from tf_transformer.compression.recipes.training_step import TrainingStep
from tf_transformer.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distil(TrainingStep):
    """Train a model with fewer layers to imitate the model before this step.

    The student starts as its teacher without some of the layers, evenly spaced (Shleifer and Rush
    2020, "Pre-trained Summarization Distillation": shrink and fine-tune), and learns with a
    `Distiller`. A translator also learns the teacher's translations of its training texts, found
    by beam search (Kim and Rush 2016).

    Args:
        layers: int, the layers that are left; or a pair of int, of the encoder and of the decoder
            of a translator.
        epochs, learning_rate, temperature, soft_targets: see `TrainingStep`.
        hidden_states: float, see `Distiller`, for BERT.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> Distil(layers=3).name
        'distil'
    """

    name: ClassVar[str] = "distil"

    layers: int | list
    epochs: int = 3
    hidden_states: float = 0.0

    def __post_init__(self):
        self.check(
            ("layers", "one or two numbers of at least 1", self._counts()),
            ("hidden_states", "at least 0", self.hidden_states >= 0),
        )

    def rehearse(self, model):
        """Cut the layers without training.

        Args:
            model: built `Transformer` or BERT model.

        Returns:
            The smaller model.

        Raises:
            ValueError: If the model has other stacks or fewer layers, or `pruned` or `Distiller`
                refuses.

        Example:
            >>> from tf_transformer.bert import Bert, BertConfig
            >>> model = Bert(BertConfig(13, 8, 6, 2, 16))
            >>> model.build()
            >>> Distil(layers=2).rehearse(model).config.num_hidden_layers
            2
        """
        counts = {name: len(layers) for name, layers in prunable_stacks(model).items()}
        wanted = self._wanted()
        if len(wanted) != len(counts):
            raise ArgumentError(
                "layers",
                f"{len(counts)} numbers, for the layers of {' and '.join(counts)}",
                f"{self.layers!r}",
            )
        gone = {}
        for (name, count), left in zip(counts.items(), wanted, strict=True):
            if left > count:
                raise ArgumentError(
                    "layers", f"at most {count}, the layers of the {name} before this step", left
                )
            kept = {round((n + 1) * count / left) - 1 for n in range(left)}
            gone[name] = [n for n in range(count) if n not in kept]
        student = pruned(model, layers=gone)
        self._taught(student, model)
        return student

    def apply(self, model, task, folder):
        """Cut the layers and train.

        Args:
            model: the teacher.
            task: `ClassifierTask` or `TranslatorTask` of `export.chain`.
            folder: Path for unfinished work.

        Returns:
            The student.
        """
        student = self.rehearse(model)
        task.distil(self._taught(student, model), model, self, folder)
        return student

    def _taught(self, student, teacher):
        return self.distiller(student, teacher, hidden_states=self.hidden_states)

    def _wanted(self):
        return (self.layers,) if isinstance(self.layers, int) else tuple(self.layers)

    def _counts(self):
        wanted = self._wanted()
        return len(wanted) in (1, 2) and all(isinstance(n, int) and n >= 1 for n in wanted)
