"""A training run of a language model in a folder, from plain text to the best weights."""

import dataclasses
import functools
import math
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.data import LanguageModelBatches, TextSource, split_documents
from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.functional.cross_entropy import smoothed_cross_entropy
from tf_transformer.models import LanguageModel
from tf_transformer.tokenizers import BPETokenizer, Tokenizer
from tf_transformer.training.accumulate_gradients import accumulate_gradients
from tf_transformer.training.callbacks.weights import load_weights
from tf_transformer.training.losses import MaskedAccuracy, SmoothedCrossentropy, TokenCrossentropy
from tf_transformer.training.optimizers import linear_decay_adam
from tf_transformer.training.runs.presets import LanguageModelPreset
from tf_transformer.training.runs.resumable_fit import resumable_fit
from tf_transformer.training.runs.run_settings import (
    found_again,
    in_locked_folder,
    precision_scope,
    read_settings,
    with_loss_scale,
    write_settings,
)

_KIND = "language model"  # tells run.json from that of a translator


class LanguageModelRun:
    """A folder with a training run of a `LanguageModel`.

    run.json            settings and texts, everything needed to start over
    tokenizer.json      the vocabulary: byte pair encoding
    best.weights.h5     weights of the epoch with the lowest validation loss per token
    checkpoints/        everything needed to resume
    history.csv         loss, loss per token and accuracy of every epoch

    The sentences of a document are joined by spaces, and the document is cut into blocks, see
    `LanguageModelBatches`. Some of the documents are held out for validation.

    Args:
        folder: str or Path.
        source: `TextSource`, the documents.
        preset: `LanguageModelPreset`, the sizes.

    Raises:
        ValueError: If the documents cannot be read or are too few to split.

    Example:
        >>> from tf_transformer.training.runs.presets import LANGUAGE_MODEL_PRESETS
        >>> preset = LANGUAGE_MODEL_PRESETS["tiny"]
        >>> run = LanguageModelRun("runs/en", TextSource(corpus="en-zh"), preset)
        >>> len(run.validation_documents)
        2701
    """

    def __init__(self, folder, source, preset):
        self.folder = Path(folder)
        self.source = source
        self.preset = preset
        documents = split_documents(source.load(), preset.validation_share)
        self.train_documents, self.validation_documents = (
            [" ".join(document) for document in part] for part in documents
        )

    @classmethod
    def open(cls, folder):
        """Open the folder of an earlier run.

        Args:
            folder: str or Path.

        Returns:
            `LanguageModelRun`.

        Raises:
            FileNotFoundError: If the folder contains no run.
            ValueError: If the run is not one of a language model, was written in another format
                version or is damaged.
        """

        def make(settings):
            preset = _read_preset(settings, folder)  # first: it knows the runs of other commands
            now = functools.partial(found_again, settings=settings, folder=folder)
            return cls(folder, TextSource(**settings["source"]).with_paths(now), preset)

        return read_settings(Path(folder) / "run.json", make)

    @property
    def tokenizer_path(self):
        """Path of the vocabulary."""
        return self.folder / "tokenizer.json"

    def facts(self):
        """What several workers must agree on, see `Workers.agree`."""
        data = [*self.train_documents, None, *self.validation_documents]
        return {"preset": dataclasses.asdict(self.preset), "data": data}

    @in_locked_folder
    def train(self, callbacks=()):
        """Train until the last epoch or until the patience is exhausted; resume if interrupted.

        Args:
            callbacks: further Keras callbacks.

        Returns:
            `LanguageModel` in float32, whatever the precision of training, with the best weights.

        Raises:
            KeyboardInterrupt: On Ctrl-C or SIGTERM, after the checkpoint is written.
            OSError: If the disk is full; the earlier checkpoints are then kept.
            ValueError: If another process trains in the folder, all checkpoints are damaged or they
                belong to a different model.
            ImportError: If the package `tokenizers` is not installed.
        """
        tokenizer = self._tokenizer()
        batches, validation = (
            self._batches(tokenizer, part)
            for part in (self.train_documents, self.validation_documents)
        )
        keras.utils.set_random_seed(self.preset.seed)
        with precision_scope(self.preset.precision):
            model = _new_model(self.preset, tokenizer.vocab_size)
        self._compile(model, self.preset.epochs * batches.steps_per_epoch)
        # Nothing is written before all of this has succeeded.
        self._write_settings(tokenizer)
        if current_workers().is_chief:
            print(
                f"{len(self.train_documents)} documents to train on, "
                f"{len(self.validation_documents)} held out; {model.count_params():,} weights; "
                f"batch shapes {batches.shapes}",
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
            callbacks=callbacks,
        )
        return self.best_model(self.folder)[0]

    def perplexity(self, model):
        """exp of the mean cross entropy of the tokens of the held-out documents.

        Every token counts once, however it was batched, including the end of each document. Numbers
        of different vocabularies cannot be compared.

        Args:
            model: `LanguageModel`.

        Returns:
            float.
        """

        @tf.function
        def loss_and_count(ids, labels):
            logits = tf.cast(model(ids, training=False), tf.float32)
            real = tf.cast(labels > 0, tf.float32)
            losses = smoothed_cross_entropy(labels, logits, 0.0) * real
            return tf.reduce_sum(losses), tf.reduce_sum(real)

        batches = self._batches(Tokenizer.load(self.tokenizer_path), self.validation_documents)
        sums = [loss_and_count(*batch) for batch in batches.dataset(epochs=1)]
        loss, count = (sum(map(float, numbers)) for numbers in zip(*sums, strict=True))
        return math.exp(loss / count)

    @staticmethod
    def best_model(folder):
        """Read the model and the vocabulary of a run, without its texts.

        Args:
            folder: str or Path.

        Returns:
            `(model, tokenizer)`: `LanguageModel` with the best weights, and `Tokenizer`.

        Raises:
            FileNotFoundError: If the folder contains no run, or no epoch is finished yet.
            ValueError: See `open`; or if the weights are damaged, or not those of the settings.
        """
        folder = Path(folder)
        preset = read_settings(folder / "run.json", lambda x: _read_preset(x, folder))
        path = folder / "best.weights.h5"
        if not path.is_file():
            raise MissingFileError(
                "path",
                "the weights of a finished epoch",
                "none",
                f"Resume with tf-transformer train-lm --resume {folder}",
                place=path,
            )
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        preset.check_sizes(path, tokenizer.vocab_size)
        model = _new_model(preset, tokenizer.vocab_size)
        load_weights(model, path)
        return model, tokenizer

    def _tokenizer(self):
        """The tokenizer, trained if the folder is new."""
        if self.tokenizer_path.exists():
            return Tokenizer.load(self.tokenizer_path)
        return BPETokenizer.train(self.train_documents, self.preset.vocab_size)

    def _write_settings(self, tokenizer):
        if not current_workers().is_chief:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_settings(
            self.folder / "run.json",
            source=dataclasses.asdict(self.source),
            preset=dataclasses.asdict(self.preset),
            kind=_KIND,
        )
        tokenizer.save(self.tokenizer_path)

    def _batches(self, tokenizer, documents):
        return LanguageModelBatches(
            tokenizer.encode(documents),
            start_id=tokenizer.start_id,
            end_id=tokenizer.end_id,
            lengths=self.preset.lengths,
            tokens_per_batch=self.preset.tokens_per_batch,
            seed=self.preset.seed,
        )

    def _compile(self, model, total_steps):
        preset = self.preset
        optimizer = linear_decay_adam(
            model.trainable_variables,
            peak_learning_rate=preset.peak_learning_rate,
            warmup_share=preset.warmup_share,
            total_steps=total_steps,
            weight_decay=preset.weight_decay,
            epsilon=1e-8,
        )
        optimizer = with_loss_scale(optimizer, preset.precision)
        optimizer.build(model.trainable_variables)
        # Without smoothing this is the mean over the real tokens of a batch.
        loss = SmoothedCrossentropy(label_smoothing=0.0)
        metrics = [MaskedAccuracy(), TokenCrossentropy()]
        model.compile(optimizer, loss=loss, metrics=metrics, jit_compile=False)
        accumulate_gradients(model, preset.accumulate)


def _read_preset(settings, folder):
    if settings.get("kind") != _KIND:
        raise ArgumentError(
            "folder",
            "a run of a language model (tf-transformer train-lm)",
            "another training run",
            place=folder,
        )
    return LanguageModelPreset(**settings["preset"])


def _new_model(preset, vocab_size):
    model = LanguageModel(
        preset.num_layers,
        preset.d_model,
        preset.num_heads,
        preset.dff,
        vocab_size,
        max_position=preset.lengths[-1],
        rate=preset.rate,
        architecture=preset.new_architecture(),
        name="language_model",
    )
    model.build()
    return model
