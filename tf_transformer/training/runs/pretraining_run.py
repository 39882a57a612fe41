"""A BERT pretraining run in a folder, from raw text to a checkpoint."""

import functools
import os

import numpy as np

from tf_transformer.data import PretrainingBatches
from tf_transformer.distribution.workers import current_workers
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.models.bert import BertConfig, BertForMaskedLM, BertForPreTraining
from tf_transformer.models.bert.text_inputs import read_bert_vocabulary, write_bert_vocabulary
from tf_transformer.models.sizes import check_vocabulary
from tf_transformer.tokenizers import WordPieceTokenizer, bert_pipeline
from tf_transformer.training.runs.presets import PretrainingPreset
from tf_transformer.training.runs.run import TextRun


class PretrainingRun(TextRun):
    """A folder with a pretraining run: settings, vocabulary, checkpoints, history and model.

    Devlin et al. 2019, section 3.1: masked words, and next sentences if the documents have them.

    run.json            settings and data, everything needed to start over
    tokenizer.json      the vocabulary; also as BERT's vocab.txt and tokenizer_config.json
    best.weights.h5     weights of the epoch with the lowest validation loss per label
    checkpoints/        everything needed to resume
    history.csv         losses and accuracies of every epoch
    model/              the best weights in Hugging Face's layout, and the vocabulary

    Without next sentences the columns of the history are `loss`, `token_loss` and `accuracy` of the
    masked words; with them `loss`, the sum, and `prediction_logits_...` and
    `seq_relationship_logits_...`. Each has a `val_...` on the held-out documents, whose pairs and
    masks are the same in every epoch.

    To train it, open it again and load its model: see `Run`.

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
        ValueError: If both a vocabulary and a start are given.

    Example:
        >>> from tf_transformer.data import TextSource
        >>> from tf_transformer.training.runs.presets import PRETRAINING_PRESETS
        >>> preset = PRETRAINING_PRESETS["tiny"]
        >>> run = PretrainingRun("runs/en", TextSource(corpus="en-zh"), preset)
        >>> len(run.validation_documents), run.next_sentence
        (2701, False)
    """

    kind, command = "BERT", "pretrain"
    preset_class = PretrainingPreset
    epsilon = 1e-6

    def __init__(self, folder, source, preset, vocabulary=None, start=None):
        super().__init__(folder, source, preset)
        if vocabulary is not None and start is not None:
            raise ArgumentError("vocabulary", "none with a start, which has its own", vocabulary)
        if start is not None and not os.path.isdir(start):
            raise MissingFileError("start", "the folder of a checkpoint", f"no folder {start}")
        self.vocabulary = vocabulary
        self.start = start

    def _others(self):
        paths = {"vocabulary": self.vocabulary, "start": self.start}
        return {name: None if path is None else str(path) for name, path in paths.items()}

    @staticmethod
    def _read_others(settings, now):
        paths = {name: settings[name] for name in ("vocabulary", "start")}
        return {name: None if path is None else now(path) for name, path in paths.items()}

    @property
    def _given_vocabulary(self):
        """The path of a vocabulary that is not trained, or None."""
        return self.vocabulary if self.start is None else self.start

    @functools.cached_property
    def next_sentence(self):
        """Whether next sentences are learned."""
        if self.preset.next_sentence is not None:
            return self.preset.next_sentence
        sizes = [len(document) for document in self.train_documents]
        return sum(size for size in sizes if size > 1) > sum(sizes) / 2

    @property
    def _outputs(self):
        """The names of the outputs with a loss; a single output has no name."""
        return ("prediction_logits", "seq_relationship_logits") if self.next_sentence else ()

    @property
    def monitor(self):
        """The loss per label, the sum of both tasks."""
        return "+".join(f"val_{name}_token_loss" for name in self._outputs) or "val_token_loss"

    @property
    def model_path(self):
        """Path of the folder that `from_pretrained` reads."""
        return self.folder / "model"

    def _facts(self):
        """What several workers must agree on, see `Workers.agree`."""
        if not self.has_begun and self._given_vocabulary is None:
            return super()._facts()
        tokenizer = self.tokenizer
        tokens = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
        return {**super()._facts(), "vocabulary": tokens}

    def _finish(self):
        """Also write the best model in Hugging Face's layout."""
        model = self.best_model()
        if current_workers().is_chief:
            model.save_pretrained(self.model_path, tokenizer_from=self.folder)
        return model

    def _train_tokenizer(self):
        """The vocabulary of a new run."""
        if self._given_vocabulary is not None:
            return read_bert_vocabulary(self._given_vocabulary, self.preset.lowercase)
        return WordPieceTokenizer.train(
            [sentence for document in self.train_documents for sentence in document],
            self.preset.vocab_size,
            bert_pipeline(self.preset.lowercase),
        )

    def _both_batches(self, tokenizer):
        train, validation = super()._both_batches(tokenizer)
        try:
            validation.steps_per_epoch  # noqa: B018  before anything is written
        except ArgumentError as error:
            raise ArgumentError(
                "documents",
                "enough to hold some out",
                f"{len(self.validation_documents)} of {len(self.train_documents)} others",
                f"{error}",
            ) from error
        return train, validation

    def batches(self, tokenizer, documents):
        """Return batches of masked words and, optionally, next sentences.

        Args:
            tokenizer: `Tokenizer` of the run.
            documents: list of lists of str.

        Returns:
            `PretrainingBatches`.
        """
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

    def _summary(self, batches):
        tasks = "masked words and next sentences" if self.next_sentence else "masked words"
        return f"{super()._summary(batches)}; {tasks}"

    def _loss_and_metrics(self):
        """The mean over the masked words, whose labels are 0 elsewhere, and over the pairs."""
        if not self.next_sentence:
            return super()._loss_and_metrics()
        each = {name: TextRun._loss_and_metrics(self) for name in self._outputs}
        losses = {name: loss for name, (loss, _) in each.items()}
        return losses, {name: metrics for name, (_, metrics) in each.items()}

    def _write_tokenizer(self, tokenizer, model):
        """Write the vocabulary in all of BERT's formats."""
        write_bert_vocabulary(self.folder, tokenizer, model.config.max_position_embeddings)

    def _check_sizes(self, path, vocab_size):
        if self.start is None:  # whose sizes are not those of the preset
            super()._check_sizes(path, vocab_size)

    def new_model(self, tokenizer):
        """Create a model with the sizes of the preset or of the start."""
        preset = self.preset
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
