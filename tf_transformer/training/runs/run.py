"""A training run in a folder, from the data to the best weights: of any model, of a translator."""

import contextlib
import dataclasses
import functools
import json
import os
from pathlib import Path

import keras

from tf_transformer import __version__
from tf_transformer.data import BucketedBatches, PairSource, PreparedPairs, ShardedBatches
from tf_transformer.data.files import locked, write_json
from tf_transformer.distribution import current_workers, together
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import check_format, parse_json
from tf_transformer.models import Transformer
from tf_transformer.tokenizers import Tokenizer, train_subwords
from tf_transformer.training.callbacks import MovingAverage, load_weights
from tf_transformer.training.losses import (
    MaskedAccuracy,
    RDrop,
    SmoothedCrossentropy,
    TokenCrossentropy,
)
from tf_transformer.training.optimizers import (
    FusedAdam,
    GlobalLossScale,
    InverseSquareRootSchedule,
    accumulate_gradients,
)
from tf_transformer.training.resume_checkpoint import resumable_fit
from tf_transformer.training.runs.presets import Preset

FORMAT = 2  # of run.json
_SHORT = 4  # tokens, see `Preset.short_repeats`


@contextlib.contextmanager
def precision_scope(precision):
    """Build the layers in a `with` block for a precision."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def found_again(file, settings, folder):
    """Find a file named in the settings of a run, even if the run's folder has moved."""
    folder = Path(folder).resolve()
    path = folder / file  # an absolute path stays unchanged
    # Not `path.exists()`, which raises an error for invalid names.
    if not os.path.exists(path):
        moved = folder / os.path.relpath(path, settings["folder"])
        path = moved if os.path.exists(moved) else path
    return os.path.normpath(path)


class Run:
    """A folder with a training run: settings, vocabulary, checkpoints, history and best weights.

    The base of `TrainingRun`, `LanguageModelRun` and `PretrainingRun`, which define class
    attributes, `batches`, `new_model`, `schedule`, `_facts` (see `Workers.agree`), `_summary`,
    `_train_tokenizer`, `_optimizer` and `_loss_and_metrics`. The data are read when needed.

    Args:
        folder: str or Path.
        source: `PairSource` or `TextSource`, the data.
        preset: the settings.

    Example:
        >>> from tf_transformer.training import PRESETS
        >>> run = TrainingRun("runs/en-zh", PairSource(corpus="en-zh"), PRESETS["tiny"])
        >>> isinstance(run, Run), run.has_begun
        (True, False)
        >>> model = run.train()  # doctest: +SKIP
        >>> model = TrainingRun.open("runs/en-zh").best_model()  # doctest: +SKIP
    """

    kind, command = None, None  # as in "a translator run", and of `tf-transformer`
    source_class, preset_class = None, None
    averages = False  # whether the moving average of the weights is validated and saved
    monitor = "val_token_loss"

    def __init__(self, folder, source, preset):
        self.folder, self.source, self.preset = Path(folder), source, preset

    @classmethod
    def open(cls, folder):
        """Open the folder, a str or Path, of an earlier run.

        Raises:
            FileNotFoundError: If the folder contains no run.
            ValueError: If the run has another kind or format version, or is damaged.
        """
        path = Path(folder) / "run.json"
        if not path.is_file():
            raise MissingFileError("folder", "the folder of a run", "no run.json", place=folder)
        try:
            settings = parse_json(path.read_bytes())
            check_format(settings, FORMAT, "Retrain, or install that version.", path)
            if settings["kind"] != cls.kind:
                expected = f"a {cls.kind} run (tf-transformer {cls.command})"
                raise ArgumentError("folder", expected, f"a {settings['kind']} run", place=folder)
            now = functools.partial(found_again, settings=settings, folder=folder)
            source = cls.source_class(**settings["source"]).with_paths(now)
            preset = cls.preset_class(**settings["preset"])
            return cls(folder, source, preset, **cls._read_others(settings, now))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ArgumentError("path", "the settings of a run", repr(error), place=path) from error

    def _others(self):
        """Return further arguments of the constructor, as JSON; see `_read_others`."""
        return {}

    @staticmethod
    def _read_others(settings, now):
        """Return further arguments of the constructor; `now` maps a path to its current one."""
        return {}

    @property
    def tokenizer_path(self):
        """Path of the vocabulary."""
        return self.folder / "tokenizer.json"

    @property
    def has_begun(self):
        """Whether the folder has the settings and the vocabulary of the run."""
        return (self.folder / "run.json").exists()

    @functools.cached_property
    def tokenizer(self):
        """`Tokenizer`: the one in the folder, or a new one if the run is new."""
        return Tokenizer.load(self.tokenizer_path) if self.has_begun else self._train_tokenizer()

    def train(self, callbacks=()):
        """Train until the last epoch or until the patience is exhausted; resume if interrupted.

        `callbacks` are further ones of Keras. Returns the model with the best weights, in float32
        regardless of the training precision.

        Raises:
            KeyboardInterrupt: On Ctrl-C or SIGTERM, after the checkpoint is written.
            OSError: If the disk is full; the earlier checkpoints are then kept.
            ValueError: If the data cannot be read or are too few to split, another process trains
                in the folder, all checkpoints are damaged or they belong to a different model.
            ImportError: If the package `tokenizers` is not installed.
        """
        workers, preset = current_workers(), self.preset
        with contextlib.ExitStack() as stack:
            with together():
                if workers.is_chief:
                    stack.enter_context(locked(self.folder))
                facts = self._facts() if workers.count > 1 else {}
            workers.agree(self.folder, **facts)
            tokenizer = self.tokenizer
            batches, validation = self._both_batches(tokenizer)
            steps = batches.steps_per_epoch
            model = self.compiled_model(tokenizer, preset.epochs * steps)
            if workers.is_chief:  # nothing is written before all of this has succeeded
                self._write_tokenizer(tokenizer, model)
                self.write_settings()
                sizes = f"{model.count_params():,} weights; {steps} steps an epoch"
                print(f"{self._summary(batches)}; {sizes}", flush=True)
            resumable_fit(
                model,
                batches,
                validation,
                self.folder,
                epochs=preset.epochs,
                monitor=self.monitor,
                patience=preset.patience,
                average=MovingAverage() if self.averages else None,
                callbacks=callbacks,
            )
            return self._finish()

    def _both_batches(self, tokenizer):
        return [self.batches(tokenizer, part) for part in self.parts]

    def compiled_model(self, tokenizer, total_steps):
        """Create the model to train, with the loss and the optimizer of the preset."""
        keras.utils.set_random_seed(self.preset.seed)
        with precision_scope(self.preset.precision):
            model = self._model_to_train(tokenizer)
            self.compile(model, self.schedule(total_steps))
        accumulate_gradients(model, self.preset.accumulate)
        return model

    def _model_to_train(self, tokenizer):
        return self.new_model(tokenizer)

    def compile(self, model, schedule):
        """Compile a built model as in training, with a learning rate schedule or a float."""
        optimizer = self._optimizer(schedule)
        if self.preset.precision == "mixed_float16":
            optimizer = GlobalLossScale(optimizer)
        optimizer.build(model.trainable_variables)
        loss, metrics = self._loss_and_metrics()
        # Compiling the whole step takes half a minute per batch shape and gains little on a CPU:
        # see benchmarks/NOTES.md.
        model.compile(optimizer, loss=loss, metrics=metrics, jit_compile=False)

    def _finish(self):
        return self.best_model()

    def best_model(self):
        """Build the model and load its best weights.

        Raises:
            FileNotFoundError: If no epoch is finished yet.
            ValueError: If a file is damaged, or the weights do not match the settings.
        """
        path = self.folder / "best.weights.h5"
        if not path.is_file():
            remedy = f"Resume with tf-transformer {self.command} --resume {self.folder}"
            expected = "the weights of a finished epoch"
            raise MissingFileError("path", expected, "none", remedy, place=path)
        tokenizer = Tokenizer.load(self.tokenizer_path)
        self._check_sizes(path, tokenizer.vocab_size)
        model = self.new_model(tokenizer)
        load_weights(model, path)
        return model

    def _check_sizes(self, path, vocab_size):
        self.preset.check_sizes(path, vocab_size)

    def _write_tokenizer(self, tokenizer, model):
        tokenizer.save(self.tokenizer_path)

    def write_settings(self):
        """Write the settings, which marks the run as begun."""
        architecture = getattr(self.preset, "architecture", None)
        if architecture is not None:
            write_json(self.folder / "architecture.json", architecture)
        settings = {
            "format": FORMAT,
            "version": __version__,
            "folder": str(self.folder.resolve()),  # where the run is now: see `found_again`
            "kind": self.kind,
            "source": dataclasses.asdict(self.source),
            "preset": dataclasses.asdict(self.preset),
            **self._others(),
        }
        write_json(self.folder / "run.json", settings)


class TrainingRun(Run):
    """A folder with a training run of a `Transformer`; to train it and load its model, see `Run`.

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

    Example:
        >>> from tf_transformer.training import PRESETS
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
        """`Split` of the data, an error if they cannot be read or are too few to split."""
        split = self.source.split(self.validation)
        if not (split.train and split.validation and split.test):
            counts = [len(part) for part in dataclasses.astuple(split)]
            raise ArgumentError("data", "enough pairs for training, validation and test", counts)
        return split

    def _others(self):
        return {"validation": self.validation and dataclasses.asdict(self.validation)}

    @staticmethod
    def _read_others(settings, now):
        validation = settings["validation"]
        return {"validation": validation and PairSource(**validation).with_paths(now)}

    def _facts(self):
        split = self.split
        if self.source.prepared:
            data = [split.train.manifest, split.train.tokenizer_path.read_text("utf-8")]
        else:
            data = list(split.train)
        data += [None, *split.validation, None, *split.test]
        return {"preset": dataclasses.asdict(self.preset), "data": data}

    def _summary(self, batches):
        return (
            f"{len(self.split.train)} pairs to train on, {batches.dropped} longer ones skipped; "
            f"batch shapes {batches.shapes}"
        )

    def description(self):
        """Return a dict for the model card: data and sizes, as JSON can represent them."""
        return {
            "name": self.source.name,
            "source": dataclasses.asdict(self.source),
            "pairs": {part: len(pairs) for part, pairs in vars(self.split).items()},
            "preset": dataclasses.asdict(self.preset),
        }

    def _train_tokenizer(self):
        if self.source.prepared:
            return Tokenizer.load(self.split.train.tokenizer_path)
        texts = [text for pair in self.split.train for text in pair]
        return train_subwords(self.preset.subword, texts, self.preset.vocab_size)

    def _both_batches(self, tokenizer):
        train = self.batches(tokenizer, self.split.train, self.preset.short_repeats)
        return train, self.batches(tokenizer, self.split.validation)

    def batches(self, tokenizer, pairs, short_repeats=1):
        """Return batches of a list of (source, target), or of `PreparedPairs`; see `Preset`."""
        marks = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        settings = {**marks, **self.preset.batching}
        if isinstance(pairs, PreparedPairs):
            return ShardedBatches(pairs, **settings)
        sides = [tokenizer.encode(list(side)) for side in zip(*pairs, strict=True)]
        short = [n for n, target in enumerate(sides[1]) if len(target) <= _SHORT]
        for side in sides:
            side += [side[n] for n in short] * (short_repeats - 1)
        return BucketedBatches(*sides, **settings)

    def schedule(self, total_steps):
        """Return the learning rate schedule of the paper."""
        sizes = self.preset.d_model, self.preset.warmup_steps
        return InverseSquareRootSchedule(*sizes, self.preset.learning_rate_scale)

    def _optimizer(self, schedule):
        """Adam of the paper, which also averages the weights."""
        adam = {"beta_1": 0.9, "beta_2": self.preset.beta_2, "epsilon": 1e-9}
        momentum = self.preset.average_momentum
        return FusedAdam(schedule, **adam, use_ema=True, ema_momentum=momentum)

    def _loss_and_metrics(self):
        smoothing = self.preset.label_smoothing
        return SmoothedCrossentropy(smoothing), [MaskedAccuracy(), TokenCrossentropy(smoothing)]

    def new_model(self, tokenizer):
        """Create a model with the sizes of the preset."""
        size, longest = tokenizer.vocab_size, 2 * self.preset.lengths[-1]
        settings = {"pe_input": longest, "pe_target": longest, "share_embeddings": True}
        return self.preset.new_model(Transformer, size, size, name="transformer", **settings)

    def _model_to_train(self, tokenizer):
        model = self.new_model(tokenizer)
        if self.preset.r_drop:
            model = RDrop(model, self.preset.r_drop)
            model.build()
        return model
