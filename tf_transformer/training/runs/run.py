"""Base of all runs: settings in a locked folder, training, the best model."""

import contextlib
import dataclasses
import functools
import json
import os
from pathlib import Path

import keras

from tf_transformer import __version__
from tf_transformer.data import TextSource, split_documents
from tf_transformer.data.files import locked, replacing
from tf_transformer.distribution.workers import current_workers, together
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import check_format, parse_json
from tf_transformer.tokenizers import Tokenizer
from tf_transformer.training.accumulate_gradients import accumulate_gradients
from tf_transformer.training.callbacks import MovingAverage, load_weights
from tf_transformer.training.losses import MaskedAccuracy, SmoothedCrossentropy, TokenCrossentropy
from tf_transformer.training.optimizers import FusedAdam, GlobalLossScale, WarmUpLinearDecay
from tf_transformer.training.runs.resumable_fit import resumable_fit

FORMAT = 2  # of run.json


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
    attributes, `batches`, `new_model`, `schedule`, `_facts`, `_train_tokenizer`, `_optimizer` and
    `_loss_and_metrics`. The data are read when they are needed.

    Args:
        folder: str or Path.
        source: `PairSource` or `TextSource`, the data.
        preset: the settings.

    Example:
        >>> from tf_transformer.data import PairSource
        >>> from tf_transformer.training import PRESETS, TrainingRun
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
        self.folder = Path(folder)
        self.source = source
        self.preset = preset

    @classmethod
    def open(cls, folder):
        """Open the folder of an earlier run.

        Args:
            folder: str or Path.

        Returns:
            The run.

        Raises:
            FileNotFoundError: If the folder contains no run.
            ValueError: If the run has another kind or format version, or is damaged.
        """
        path = Path(folder) / "run.json"
        if not path.is_file():
            got = f"no {path.name}"
            raise MissingFileError("folder", "the folder of a run", got, place=folder)
        try:
            settings = parse_json(path.read_bytes())
            check_format(settings, FORMAT, "Retrain, or install that version.", path)
            if settings["kind"] != cls.kind:
                raise ArgumentError(
                    "folder",
                    f"a {cls.kind} run (tf-transformer {cls.command})",
                    f"a {settings['kind']} run",
                    place=folder,
                )
            now = functools.partial(found_again, settings=settings, folder=folder)
            source = cls.source_class(**settings["source"]).with_paths(now)
            preset = cls.preset_class(**settings["preset"])
            return cls(folder, source, preset, **cls._read_others(settings, now))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ArgumentError(
                "path", "the settings of a run", f"{error!r}", place=path
            ) from error

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

    def train(self, callbacks=()):
        """Train until the last epoch or until the patience is exhausted; resume if interrupted.

        Args:
            callbacks: further Keras callbacks.

        Returns:
            The model with the best weights, in float32 regardless of the training precision.

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
            model = self.compiled_model(tokenizer, preset.epochs * batches.steps_per_epoch)
            if workers.is_chief:  # nothing is written before all of this has succeeded
                self._write_tokenizer(tokenizer, model)
                self.write_settings()
                print(
                    f"{self._summary(batches)}; {model.count_params():,} weights; "
                    f"{batches.steps_per_epoch} steps an epoch",
                    flush=True,
                )
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

    def _finish(self):
        """Return the result of `train`."""
        return self.best_model()

    def best_model(self):
        """Build the model and load its best weights.

        Returns:
            The model.

        Raises:
            FileNotFoundError: If no epoch is finished yet.
            ValueError: If a file is damaged, or the weights do not match the settings.
        """
        path = self.folder / "best.weights.h5"
        if not path.is_file():
            raise MissingFileError(
                "path",
                "the weights of a finished epoch",
                "none",
                f"Resume with tf-transformer {self.command} --resume {self.folder}",
                place=path,
            )
        tokenizer = Tokenizer.load(self.tokenizer_path)
        self._check_sizes(path, tokenizer.vocab_size)
        model = self.new_model(tokenizer)
        load_weights(model, path)
        return model

    def _check_sizes(self, path, vocab_size):
        """Refuse sizes of a model far beyond the weights in a file."""
        self.preset.check_sizes(path, vocab_size)

    @functools.cached_property
    def tokenizer(self):
        """`Tokenizer`: the one in the folder, or a new one if the run is new."""
        return Tokenizer.load(self.tokenizer_path) if self.has_begun else self._train_tokenizer()

    def compiled_model(self, tokenizer, total_steps):
        """Create the model to train, with the loss and the optimizer of the preset."""
        keras.utils.set_random_seed(self.preset.seed)
        with precision_scope(self.preset.precision):
            model = self._model_to_train(tokenizer)
            self.compile(model, self.schedule(total_steps))
        accumulate_gradients(model, self.preset.accumulate)
        return model

    def compile(self, model, schedule):
        """Compile a model with the loss and the optimizer of the preset, for whole batches.

        Args:
            model: built model.
            schedule: float or learning rate schedule.
        """
        optimizer = self._optimizer(schedule)
        if self.preset.precision == "mixed_float16":
            optimizer = GlobalLossScale(optimizer)
        optimizer.build(model.trainable_variables)
        loss, metrics = self._loss_and_metrics()
        # Compiling the whole step takes half a minute per batch shape and gains little on a CPU:
        # see benchmarks/NOTES.md.
        model.compile(optimizer, loss=loss, metrics=metrics, jit_compile=False)

    def _model_to_train(self, tokenizer):
        """Return a new model, possibly wrapped to add a loss."""
        return self.new_model(tokenizer)

    def _both_batches(self, tokenizer):
        """Return the training and validation batches."""
        return [self.batches(tokenizer, part) for part in self.parts]

    def _write_tokenizer(self, tokenizer, model):
        """Write the vocabulary."""
        tokenizer.save(self.tokenizer_path)

    def write_settings(self):
        """Write the settings, which marks the run as begun."""
        architecture = getattr(self.preset, "architecture", None)
        if architecture is not None:
            self._write_json("architecture.json", architecture)
        settings = {
            "format": FORMAT,
            "version": __version__,
            "folder": str(self.folder.resolve()),  # where the run is now: see `found_again`
            "kind": self.kind,
            "source": dataclasses.asdict(self.source),
            "preset": dataclasses.asdict(self.preset),
            **self._others(),
        }
        self._write_json("run.json", settings)

    def _write_json(self, name, content):
        with replacing(self.folder / name) as beside:
            beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


class TextRun(Run):
    """A run on documents, some of which are held out for validation."""

    source_class = TextSource
    epsilon = 1e-8  # of Adam

    @functools.cached_property
    def parts(self):
        """The training and held-out documents, lists of lists of sentences."""
        return split_documents(self.source.load(), self.preset.validation_share)

    @property
    def train_documents(self):
        """The training documents."""
        return self.parts[0]

    @property
    def validation_documents(self):
        """The held-out documents."""
        return self.parts[1]

    def _facts(self):
        """What several workers must agree on, see `Workers.agree`."""
        data = [*self.train_documents, None, *self.validation_documents]
        return {"preset": dataclasses.asdict(self.preset), "data": data}

    def _summary(self, batches):
        """Describe the data."""
        train, validation = map(len, self.parts)
        return f"{train} documents to train on, {validation} held out"

    def schedule(self, total_steps):
        """Return the learning rate schedule."""
        warmup = min(int(self.preset.warmup_share * total_steps), total_steps - 1)
        return WarmUpLinearDecay(self.preset.peak_learning_rate, warmup, total_steps)

    def _optimizer(self, schedule):
        """Adam as for BERT and GPT-2: Devlin et al. 2019, appendix A.2."""
        optimizer = FusedAdam(
            schedule,
            beta_1=0.9,
            beta_2=0.999,
            epsilon=self.epsilon,
            weight_decay=self.preset.weight_decay,
            global_clipnorm=1.0,
        )
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        return optimizer

    def _loss_and_metrics(self):
        """Without smoothing, the loss is the mean over the real labels of a batch."""
        return SmoothedCrossentropy(label_smoothing=0.0), [MaskedAccuracy(), TokenCrossentropy()]
