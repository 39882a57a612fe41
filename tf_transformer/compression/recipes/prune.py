"""The step of a recipe that removes heads and inner units."""

import dataclasses
from typing import ClassVar

import numpy as np

from tf_transformer.compression.choosing import least_important
from tf_transformer.compression.gradual_pruning import prune_gradually
from tf_transformer.compression.prunable import attention_sites, network_sites
from tf_transformer.compression.pruning import pruned
from tf_transformer.compression.recipes.training_step import TrainingStep
from tf_transformer.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prune(TrainingStep):
    """Remove the least important heads and inner units of the feed-forward networks, and train.

    Args:
        heads, units: floats in [0, 1), the share of them to remove; one of the two is above 0.
        rounds: int, how many times to remove a part and train.
        epochs, learning_rate, temperature, soft_targets: see `TrainingStep`, for each round.
        by: "gradient", "ablation" or, for heads alone, "confidence": see `head_importance`.

    Raises:
        ValueError: If a setting is out of range.

    Example:
        >>> Prune(heads=0.5, units=0.25).by
        'gradient'
    """

    name: ClassVar[str] = "prune"

    heads: float = 0.0
    units: float = 0.0
    rounds: int = 1
    by: str = "gradient"

    def __post_init__(self):
        measures = ("gradient", "ablation", *(() if self.units else ("confidence",)))
        self.check(
            ("heads", "a share in [0, 1)", 0 <= self.heads < 1),
            ("units", "a share in [0, 1)", 0 <= self.units < 1),
            ("heads", "a share above 0, or one of the units", self.heads or self.units),
            ("rounds", "at least 1", self.rounds >= 1),
            ("by", " or ".join(measures), self.by in measures),
        )

    def rehearse(self, model):
        """Remove as many heads and units, but any ones, without training.

        Args:
            model: built `Transformer` or BERT model.

        Returns:
            The smaller model.

        Raises:
            ValueError: If a layer would lose all of them, or `pruned` refuses.

        Example:
            >>> from tf_transformer.bert import Bert, BertConfig
            >>> model = Bert(BertConfig(13, 8, 2, 4, 16))
            >>> model.build()
            >>> sum(heads for heads, _ in Prune(heads=0.5).rehearse(model).config.layer_sizes)
            4
        """
        cuts = {}
        for name, find, share in (
            ("heads", attention_sites, self.heads),
            ("units", network_sites, self.units),
        ):
            if share:
                equal = {
                    stack: [np.ones(site.count) for site in sites]
                    for stack, sites in find(model).items()
                }
                try:
                    cuts[name] = least_important(equal, share)
                except ArgumentError as error:
                    raise error.inside(name) from None
        return pruned(model, **cuts)

    def apply(self, model, task, folder):
        """Remove and train.

        Args:
            model: the model before; it does not change.
            task: `ClassifierTask` or `TranslatorTask` of `export.chain`.
            folder: Path for unfinished work.

        Returns:
            The smaller model.
        """
        task.compile(model)
        rounds = iter(range(1, self.rounds + 1))

        def train(smaller):
            task.compile(smaller)  # the next round measures importance
            task.train(self.distiller(smaller, model), self, folder / f"round-{next(rounds)}")

        return prune_gradually(
            model,
            task.examples(),
            train,
            heads=self.heads,
            units=self.units,
            steps=self.rounds,
            by=self.by,
        )
