"""A training run of a translator in a folder, from sentence pairs to the best weights."""

import dataclasses
import functools

from tf_transformer.data import BucketedBatches, PairSource, PreparedPairs, ShardedBatches
from tf_transformer.errors import ArgumentError
from tf_transformer.models import Transformer
from tf_transformer.tokenizers import Tokenizer, train_subwords
from tf_transformer.training.losses import (
    MaskedAccuracy,
    RDrop,
    SmoothedCrossentropy,
    TokenCrossentropy,
)
from tf_transformer.training.optimizers import FusedAdam, InverseSquareRootSchedule
from tf_transformer.training.runs.presets import Preset
from tf_transformer.training.runs.run import Run

_SHORT = 4  # tokens, see `Preset.short_repeats`


class TrainingRun(Run):
    """A folder with a training run: settings, vocabulary, checkpoints, history and best weights.

    run.json            settings and data, everything needed to start over
    architecture.json   the parts of the model, if they are not the paper's
    tokenizer.json      the joint vocabulary
    best.weights.h5     averaged weights of the epoch with the lowest validation loss per token
    checkpoints/        everything needed to resume
    history.csv         loss, loss per token and accuracy of every epoch

    To train it, open it again and load its model: see `Run`.

    Args:
        folder: str or Path.
        source: `PairSource`, the data.
        preset: `Preset`, the sizes.
        validation: None, for a part of the data; or `PairSource`, a validation set of your own.

    Example:
        >>> from tf_transformer.training.runs.presets import PRESETS
        >>> run = TrainingRun("runs/en-zh", PairSource(corpus="en-zh"), PRESETS["tiny"])
        >>> len(run.split.test)
        1221
    """

    kind, command = "translator", "train"
    source_class, preset_class = PairSource, Preset
    averages = True

    def __init__(self, folder, source, preset, validation=None):
        super().__init__(folder, source, preset)
        self.validation = validation
        if source.prepared:
            changes = {**self.split.train.vocabulary, "short_repeats": 1}
            self.preset = preset.with_changes(changes)

    @functools.cached_property
    def split(self):
        """`Split` of the data.

        Raises:
            ValueError: If the data cannot be read or are too few to split.
        """
        split = self.source.split(self.validation)
        if not (split.train and split.validation and split.test):
            raise ArgumentError(
                "data",
                "enough pairs for training, validation and test",
                [len(part) for part in dataclasses.astuple(split)],
            )
        return split

    def _others(self):
        return {"validation": self.validation and dataclasses.asdict(self.validation)}

    @staticmethod
    def _read_others(settings, now):
        validation = settings["validation"]
        return {"validation": validation and PairSource(**validation).with_paths(now)}

    def _facts(self):
        """What several workers must agree on, see `Workers.agree`."""
        split = self.split
        if self.source.prepared:
            data = [split.train.manifest, split.train.tokenizer_path.read_text("utf-8")]
        else:
            data = list(split.train)
        data += [None, *split.validation, None, *split.test]
        return {"preset": dataclasses.asdict(self.preset), "data": data}

    def _summary(self, batches):
        """Describe the data."""
        return (
            f"{len(self.split.train)} pairs to train on, {batches.dropped} longer ones skipped; "
            f"batch shapes {batches.shapes}"
        )

    def _train_tokenizer(self):
        """The vocabulary of a new run."""
        if self.source.prepared:
            return Tokenizer.load(self.split.train.tokenizer_path)
        texts = [text for pair in self.split.train for text in pair]
        return train_subwords(self.preset.subword, texts, self.preset.vocab_size)

    def _both_batches(self, tokenizer):
        """Return the training batches, with repeated short pairs, and the validation batches."""
        train = self.batches(tokenizer, self.split.train, self.preset.short_repeats)
        return train, self.batches(tokenizer, self.split.validation)

    def batches(self, tokenizer, pairs, short_repeats=1):
        """Return batches of pairs with the lengths of the preset.

        Args:
            tokenizer: `Tokenizer` of the run.
            pairs: list of (source, target), or `PreparedPairs`.
            short_repeats: int, see `Preset`.

        Returns:
            `BucketedBatches` or `ShardedBatches`.
        """
        settings = {
            "start_id": tokenizer.start_id,
            "end_id": tokenizer.end_id,
            "lengths": self.preset.lengths,
            "tokens_per_batch": self.preset.tokens_per_batch,
            "seed": self.preset.seed,
        }
        if isinstance(pairs, PreparedPairs):
            return ShardedBatches(pairs, **settings)
        sides = [tokenizer.encode(list(side)) for side in zip(*pairs, strict=True)]
        short = [n for n, target in enumerate(sides[1]) if len(target) <= _SHORT]
        for side in sides:
            side += [side[n] for n in short] * (short_repeats - 1)
        return BucketedBatches(*sides, **settings)

    def schedule(self, total_steps):
        """Return the learning rate schedule."""
        preset = self.preset
        return InverseSquareRootSchedule(
            preset.d_model, preset.warmup_steps, preset.learning_rate_scale
        )

    def _optimizer(self, schedule):
        """Adam of the paper, which also averages the weights."""
        return FusedAdam(
            schedule,
            beta_1=0.9,
            beta_2=self.preset.beta_2,
            epsilon=1e-9,
            use_ema=True,
            ema_momentum=self.preset.average_momentum,
        )

    def _loss_and_metrics(self):
        """The loss of the paper."""
        smoothing = self.preset.label_smoothing
        return SmoothedCrossentropy(smoothing), [MaskedAccuracy(), TokenCrossentropy(smoothing)]

    def description(self):
        """Return a description of data and sizes for the model card.

        Returns:
            dict that JSON can represent.
        """
        return {
            "name": self.source.name,
            "source": dataclasses.asdict(self.source),
            "pairs": {part: len(pairs) for part, pairs in vars(self.split).items()},
            "preset": dataclasses.asdict(self.preset),
        }

    def new_model(self, tokenizer):
        """Create a model with the sizes of the preset."""
        preset, vocab_size = self.preset, tokenizer.vocab_size
        model = Transformer(
            preset.num_layers,
            preset.d_model,
            preset.num_heads,
            preset.dff,
            vocab_size,
            vocab_size,
            pe_input=2 * preset.lengths[-1],
            pe_target=2 * preset.lengths[-1],
            rate=preset.rate,
            share_embeddings=True,
            architecture=preset.new_architecture(),
            name="transformer",
        )
        model.build()
        return model

    def _model_to_train(self, tokenizer):
        model = self.new_model(tokenizer)
        if self.preset.r_drop:
            model = RDrop(model, self.preset.r_drop)
            model.build()
        return model
