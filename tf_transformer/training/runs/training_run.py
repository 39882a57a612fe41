"""A training run of a translator in a folder, from sentence pairs to the best weights."""

import dataclasses
import functools
import json
from pathlib import Path

import keras

from tf_transformer.data import (
    BucketedBatches,
    PairSource,
    PreparedPairs,
    ShardedBatches,
)
from tf_transformer.data.files import replacing
from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.models import Transformer
from tf_transformer.tokenizers import Tokenizer, train_subwords
from tf_transformer.training.accumulate_gradients import accumulate_gradients
from tf_transformer.training.callbacks.weights import MovingAverage, load_weights
from tf_transformer.training.losses import (
    MaskedAccuracy,
    RDrop,
    SmoothedCrossentropy,
    TokenCrossentropy,
)
from tf_transformer.training.optimizers import (
    FusedAdam,
    InverseSquareRootSchedule,
)
from tf_transformer.training.runs.presets import Preset
from tf_transformer.training.runs.resumable_fit import resumable_fit
from tf_transformer.training.runs.run_settings import (
    found_again,
    in_locked_folder,
    precision_scope,
    read_settings,
    with_loss_scale,
    write_settings,
)

_SHORT = 4  # tokens, see `Preset.short_repeats`


class TrainingRun:
    """A folder with a training run: settings, vocabulary, checkpoints, history and best weights.

    run.json            settings and data, everything needed to start over
    architecture.json   the parts of the model, if they are not the paper's
    tokenizer.json      the joint vocabulary
    best.weights.h5     averaged weights of the epoch with the lowest validation loss per token
    checkpoints/        everything needed to resume
    history.csv         loss, loss per token and accuracy of every epoch

    Args:
        folder: str or Path.
        source: `PairSource`, the data.
        preset: `Preset`, the sizes.
        validation: None, for a part of the data; or `PairSource`, a validation set of your own.

    Raises:
        ValueError: If the data cannot be read or is too small to split.

    Example:
        >>> from tf_transformer.training.runs.presets import PRESETS
        >>> run = TrainingRun("runs/en-zh", PairSource(corpus="en-zh"), PRESETS["tiny"])
        >>> len(run.split.test)
        1221
    """

    def __init__(self, folder, source, preset, validation=None):
        self.folder = Path(folder)
        self.source = source
        self.preset = preset
        self.validation = validation
        self.split = source.split(validation)
        if source.prepared:
            self.preset = preset.with_changes({**self.split.train.vocabulary, "short_repeats": 1})
        if not (self.split.train and self.split.validation and self.split.test):
            raise ArgumentError(
                "data",
                "enough pairs for training, validation and test",
                [len(part) for part in dataclasses.astuple(self.split)],
            )

    @classmethod
    def open(cls, folder):
        """Open the folder of an earlier run.

        Args:
            folder: str or Path.

        Returns:
            `TrainingRun`.

        Raises:
            FileNotFoundError: If the folder contains no run.
            ValueError: If the run was written in another format version or is damaged.
        """

        def make(settings):
            now = functools.partial(found_again, settings=settings, folder=folder)
            preset = Preset(**settings["preset"])
            source = PairSource(**settings["source"]).with_paths(now)
            validation = settings.get("validation")
            if validation is not None:
                validation = PairSource(**validation).with_paths(now)
            return cls(folder, source, preset, validation)

        return read_settings(Path(folder) / "run.json", make)

    @property
    def tokenizer_path(self):
        """Path of the vocabulary."""
        return self.folder / "tokenizer.json"

    def facts(self):
        """What several workers must agree on, see `Workers.agree`."""
        split = self.split
        if self.source.prepared:
            data = [split.train.manifest, split.train.tokenizer_path.read_text("utf-8")]
        else:
            data = list(split.train)
        data += [None, *split.validation, None, *split.test]
        return {"preset": dataclasses.asdict(self.preset), "data": data}

    @in_locked_folder
    def train(self, callbacks=()):
        """Train until the last epoch or until the patience is exhausted; resume if interrupted.

        The moving average of the weights is validated and saved.

        Args:
            callbacks: further Keras callbacks.

        Returns:
            `Transformer` in float32, whatever the precision of training, with the best weights.

        Raises:
            KeyboardInterrupt: On Ctrl-C or SIGTERM, after the checkpoint is written.
            OSError: If the disk is full; the earlier checkpoints are then kept.
            ValueError: If another process trains in the folder, all checkpoints are damaged or they
                belong to a different model.
        """
        tokenizer = self._tokenizer()
        batches = self.batches(tokenizer, self.split.train, self.preset.short_repeats)
        validation = self.batches(tokenizer, self.split.validation)
        with precision_scope(self.preset.precision):
            model = self._compiled_model(tokenizer.vocab_size)
        if current_workers().is_chief:
            print(
                f"{len(self.split.train)} pairs to train on, {batches.dropped} longer ones "
                f"skipped; {model.count_params():,} weights; batch shapes {batches.shapes}",
                flush=True,
            )
        resumable_fit(
            model,
            batches,
            validation,
            self.folder,
            epochs=self.preset.epochs,
            monitor="val_token_loss",
            patience=self.preset.patience,
            average=MovingAverage(),
            callbacks=callbacks,
        )
        return self.best_model()

    def best_model(self):
        """Build the model and load its best weights.

        Returns:
            `Transformer`.

        Raises:
            FileNotFoundError: If no epoch is finished yet.
            ValueError: If a file is damaged, or the weights are not those of the settings.
        """
        path = self.folder / "best.weights.h5"
        if not path.is_file():
            raise MissingFileError(
                "path",
                "the weights of a finished epoch",
                "none",
                f"Resume with tf-transformer train --resume {self.folder}",
                place=path,
            )
        vocab_size = Tokenizer.load(self.tokenizer_path).vocab_size
        self.preset.check_sizes(path, vocab_size)
        model = self._model(vocab_size)
        load_weights(model, path)
        return model

    def batches(self, tokenizer, pairs, short_repeats=1):
        """Batches of pairs with the lengths of the preset.

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

    def compile(self, model, schedule):
        """Compile a model with the loss and the optimizer of the preset, for whole batches.

        Args:
            model: built model.
            schedule: float or learning rate schedule.
        """
        preset = self.preset
        optimizer = FusedAdam(
            schedule,
            beta_1=0.9,
            beta_2=preset.beta_2,
            epsilon=1e-9,
            use_ema=True,
            ema_momentum=preset.average_momentum,
        )
        optimizer = with_loss_scale(optimizer, preset.precision)
        optimizer.build(model.trainable_variables)
        model.compile(
            optimizer,
            loss=SmoothedCrossentropy(preset.label_smoothing),
            metrics=[MaskedAccuracy(), TokenCrossentropy(preset.label_smoothing)],
            # Compiling the whole step takes half a minute per batch shape and gains little on a
            # CPU: see benchmarks/NOTES.md.
            jit_compile=False,
        )

    def description(self):
        """Description of the data and the sizes for the model card.

        Returns:
            dict that JSON can represent.
        """
        return {
            "name": self.source.name,
            "source": dataclasses.asdict(self.source),
            "pairs": {part: len(pairs) for part, pairs in vars(self.split).items()},
            "preset": dataclasses.asdict(self.preset),
        }

    def _write_settings(self):
        if not current_workers().is_chief:
            return
        write_settings(
            self.folder / "run.json",
            source=dataclasses.asdict(self.source),
            preset=dataclasses.asdict(self.preset),
            validation=self.validation and dataclasses.asdict(self.validation),
        )
        if self.preset.architecture is not None:
            with replacing(self.folder / "architecture.json") as beside:
                beside.write_text(json.dumps(self.preset.architecture, indent=2) + "\n", "utf-8")

    def _tokenizer(self):
        """The tokenizer, trained if the folder is new; nothing is written before that succeeds."""
        if self.tokenizer_path.exists():
            self._write_settings()
            return Tokenizer.load(self.tokenizer_path)
        if self.source.prepared:
            tokenizer = Tokenizer.load(self.split.train.tokenizer_path)
        else:
            texts = [text for pair in self.split.train for text in pair]
            tokenizer = train_subwords(self.preset.subword, texts, self.preset.vocab_size)
        self._write_settings()
        if current_workers().is_chief:
            tokenizer.save(self.tokenizer_path)
        return tokenizer

    def _model(self, vocab_size):
        preset = self.preset
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

    def _compiled_model(self, vocab_size):
        preset = self.preset
        keras.utils.set_random_seed(preset.seed)
        model = self._model(vocab_size)
        if preset.r_drop:
            model = RDrop(model, preset.r_drop)
            model.build()
        schedule = InverseSquareRootSchedule(
            preset.d_model, preset.warmup_steps, preset.learning_rate_scale
        )
        self.compile(model, schedule)
        accumulate_gradients(model, preset.accumulate)
        return model
