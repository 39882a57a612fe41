"""A BERT pretraining run in a folder, from raw text to a checkpoint."""

import dataclasses
import functools
import os
from pathlib import Path

import keras
import numpy as np

from tf_transformer.data import PretrainingBatches, TextSource, split_documents
from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.models.bert import BertConfig, BertForMaskedLM, BertForPreTraining
from tf_transformer.models.bert.text_inputs import read_bert_vocabulary, write_bert_vocabulary
from tf_transformer.models.sizes import check_vocabulary
from tf_transformer.tokenizers import WordPieceTokenizer, bert_pipeline
from tf_transformer.training.accumulate_gradients import accumulate_gradients
from tf_transformer.training.losses import MaskedAccuracy, SmoothedCrossentropy, TokenCrossentropy
from tf_transformer.training.optimizers import linear_decay_adam
from tf_transformer.training.runs.presets import PretrainingPreset
from tf_transformer.training.runs.resumable_fit import resumable_fit
from tf_transformer.training.runs.run_settings import (
    found_again,
    in_locked_folder,
    read_settings,
    write_settings,
)


class PretrainingRun:
    """A folder with a pretraining run: settings, vocabulary, checkpoints, history and model.

    Devlin et al. 2019, section 3.1: masked words, and next sentences if the documents have them.

    pretraining.json    settings and data, everything needed to start over
    tokenizer.json      the vocabulary; also as BERT's vocab.txt and tokenizer_config.json
    best.weights.h5     weights of the epoch with the lowest validation loss per label
    checkpoints/        everything needed to resume
    history.csv         losses and accuracies of every epoch
    model/              the best weights in Hugging Face's layout, and the vocabulary

    Without next sentences the columns of the history are `loss`, `token_loss` and `accuracy` of the
    masked words; with them `loss`, the sum, and `prediction_logits_...` and
    `seq_relationship_logits_...`. Each has a `val_...` on the held-out documents, whose pairs and
    masks are the same in every epoch.

    Args:
        folder: str or Path.
        source: `TextSource`, the documents.
        preset: `PretrainingPreset`, the sizes.
        vocabulary: None to train one on the documents; or str or Path of a `vocab.txt`, of the
            `tokenizer.json` of a WordPiece model with BERT's special tokens, or of a checkpoint
            folder with either.
        start: None, or str or Path of a checkpoint folder, whose sizes, weights and vocabulary are
            used, to adapt it to other texts (Gururangan et al. 2020, "Don't Stop Pretraining"). The
            heads it contains are used, but its pooler only with next sentences: without them it is
            not trained, and fine-tuning starts with a new one.

    Raises:
        FileNotFoundError: If `start` is not a folder.
        ValueError: If the documents cannot be read or are too few to split, or if both a vocabulary
            and a start are given.

    Example:
        >>> from tf_transformer.training.runs.presets import PRETRAINING_PRESETS
        >>> preset = PRETRAINING_PRESETS["tiny"]
        >>> run = PretrainingRun("runs/en", TextSource(corpus="en-zh"), preset)
        >>> len(run.validation_documents), run.next_sentence
        (2701, False)
    """

    def __init__(self, folder, source, preset, vocabulary=None, start=None):
        if vocabulary is not None and start is not None:
            raise ArgumentError("vocabulary", "none with a start, which has its own", vocabulary)
        if start is not None and not os.path.isdir(start):
            raise MissingFileError("start", "the folder of a checkpoint", f"no folder {start}")
        self.folder = Path(folder)
        self.source = source
        self.preset = preset
        self.vocabulary = vocabulary
        self.start = start
        self.train_documents, self.validation_documents = split_documents(
            source.load(), preset.validation_share
        )
        self.next_sentence = preset.next_sentence
        if self.next_sentence is None:
            sizes = [len(document) for document in self.train_documents]
            self.next_sentence = sum(size for size in sizes if size > 1) > sum(sizes) / 2

    @classmethod
    def open(cls, folder):
        """Open the folder of an earlier run.

        Args:
            folder: str or Path.

        Returns:
            `PretrainingRun`.

        Raises:
            FileNotFoundError: If the folder contains no run.
            ValueError: If the run was written in another format version or is damaged.
        """

        def make(settings):
            now = functools.partial(found_again, settings=settings, folder=folder)
            source = TextSource(**settings["source"]).with_paths(now)
            preset = PretrainingPreset(**settings["preset"])
            others = (settings["vocabulary"], settings.get("start"))
            return cls(
                folder, source, preset, *(None if file is None else now(file) for file in others)
            )

        return read_settings(Path(folder) / "pretraining.json", make)

    @property
    def model_path(self):
        """Path of the folder that `from_pretrained` reads."""
        return self.folder / "model"

    def facts(self):
        """What several workers must agree on, see `Workers.agree`."""
        data = [*self.train_documents, None, *self.validation_documents]
        found = {"preset": dataclasses.asdict(self.preset), "data": data}
        if self._given_vocabulary is not None:
            tokenizer = self._tokenizer()
            found["vocabulary"] = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
        return found

    @in_locked_folder
    def train(self, callbacks=()):
        """Train until the last epoch, resuming an interrupted run, and write the model.

        Args:
            callbacks: further Keras callbacks.

        Returns:
            `BertForPreTraining`, or without next sentences `BertForMaskedLM`, with the best
            weights.

        Raises:
            KeyboardInterrupt: On Ctrl-C or SIGTERM, after the checkpoint is written.
            OSError: If the disk is full; the earlier checkpoints are then kept.
            ValueError: If another process trains in the folder, all checkpoints are damaged or they
                belong to a different model, the vocabulary
                is not BERT's, or the documents have no pairs for next sentences.
            ImportError: If the package `tokenizers` or `safetensors` is not installed.
        """
        tokenizer = self._tokenizer()
        model = self._new_model(tokenizer)
        batches, validation = (
            self._batches(tokenizer, documents)
            for documents in (self.train_documents, self.validation_documents)
        )
        try:
            validation.steps_per_epoch  # noqa: B018  before anything is written
        except ArgumentError as error:
            raise ArgumentError(
                "documents",
                "enough to hold some out",
                f"{len(self.validation_documents)} of {len(self.train_documents)} others",
                f"{error}",
            ) from error
        self._compile(model, self.preset.epochs * batches.steps_per_epoch)
        if current_workers().is_chief:
            print(
                f"{len(self.train_documents)} documents to train on, "
                f"{len(self.validation_documents)} held out; {model.count_params():,} weights; "
                f"{batches.steps_per_epoch} steps an epoch; masked words"
                f"{' and next sentences' if self.next_sentence else ''}",
                flush=True,
            )
        self._write_settings(tokenizer, model.config)
        outputs = (
            ("prediction_logits_", "seq_relationship_logits_") if self.next_sentence else ("",)
        )
        resumable_fit(
            model,
            batches,
            validation,
            self.folder,
            epochs=self.preset.epochs,
            monitor="+".join(f"val_{name}token_loss" for name in outputs),
            callbacks=callbacks,
        )
        if current_workers().is_chief:
            model.save_pretrained(self.model_path, tokenizer_from=self.folder)
        return model

    @property
    def _given_vocabulary(self):
        path = self.folder / "tokenizer.json"
        begun = (self.folder / "pretraining.json").exists()
        return path if begun else self.start or self.vocabulary

    def _tokenizer(self):
        """The tokenizer, trained if the folder is new."""
        if self._given_vocabulary is not None:
            return read_bert_vocabulary(self._given_vocabulary, self.preset.lowercase)
        return WordPieceTokenizer.train(
            [sentence for document in self.train_documents for sentence in document],
            self.preset.vocab_size,
            bert_pipeline(self.preset.lowercase),
        )

    def _write_settings(self, tokenizer, config):
        """Write the vocabulary, then the settings."""
        if not current_workers().is_chief:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_bert_vocabulary(self.folder, tokenizer, config.max_position_embeddings)
        write_settings(
            self.folder / "pretraining.json",
            source=dataclasses.asdict(self.source),
            preset=dataclasses.asdict(self.preset),
            vocabulary=None if self.vocabulary is None else str(self.vocabulary),
            start=None if self.start is None else str(self.start),
        )

    def _batches(self, tokenizer, documents):
        ids = iter(tokenizer.encode([text for document in documents for text in document]))
        documents = [[next(ids) for _ in document] for document in documents]
        # A sentence consisting only of unreadable characters has no tokens.
        documents = [[sentence for sentence in document if sentence] for document in documents]
        continues_word = None
        if self.preset.whole_words:
            tokens = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
            continues_word = np.array([token.startswith("##") for token in tokens])
        return PretrainingBatches(
            [document for document in documents if document],
            tokenizer,
            next_sentence=self.next_sentence,
            lengths=self.preset.lengths,
            tokens_per_batch=self.preset.tokens_per_batch,
            continues_word=continues_word,
            rate=self.preset.mask_rate,
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
            epsilon=1e-6,
        )
        # The mean over the masked words, whose labels are 0 elsewhere.
        loss = SmoothedCrossentropy(label_smoothing=0.0)
        metrics = [MaskedAccuracy(), TokenCrossentropy()]
        if self.next_sentence:
            loss = {
                "prediction_logits": loss,
                "seq_relationship_logits": SmoothedCrossentropy(label_smoothing=0.0),
            }
            metrics = {
                "prediction_logits": metrics,
                "seq_relationship_logits": [MaskedAccuracy(), TokenCrossentropy()],
            }
        model.compile(optimizer, loss=loss, metrics=metrics, jit_compile=False)
        accumulate_gradients(model, preset.accumulate)

    def _new_model(self, tokenizer):
        preset = self.preset
        keras.utils.set_random_seed(preset.seed)
        cls = BertForPreTraining if self.next_sentence else BertForMaskedLM
        dropout = {
            "hidden_dropout_prob": preset.dropout,
            "attention_probs_dropout_prob": preset.dropout,
        }
        if self.start is not None:
            model = cls.from_pretrained(self.start, new_head=None, **dropout)
            check_vocabulary(model, tokenizer, "start")
            most = model.config.max_position_embeddings
            if preset.lengths[-1] > most:
                raise ArgumentError(
                    "lengths", f"at most {most}, the positions in {self.start}", preset.lengths
                )
            return model
        model = cls(
            BertConfig(
                vocab_size=tokenizer.vocab_size,
                hidden_size=preset.hidden_size,
                num_hidden_layers=preset.num_hidden_layers,
                num_attention_heads=preset.num_attention_heads,
                intermediate_size=preset.intermediate_size,
                max_position_embeddings=preset.lengths[-1],
                **dropout,
            )
        )
        model.build()
        return model
