"""Runs on documents of plain text: language models, and the pretraining of BERT."""

import dataclasses
import functools
import math
import os

import numpy as np
import tensorflow as tf

from tf_transformer.data import (
    LanguageModelBatches,
    PretrainingBatches,
    TextSource,
    split_documents,
)
from tf_transformer.distribution import current_workers
from tf_transformer.errors import ArgumentError, MissingFileError, check
from tf_transformer.functional.labels import smoothed_cross_entropy
from tf_transformer.models import LanguageModel
from tf_transformer.models.base_model import check_vocabulary
from tf_transformer.models.bert import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    read_config,
)
from tf_transformer.models.bert.text_inputs import read_bert_vocabulary, write_bert_vocabulary
from tf_transformer.tokenizers import BPETokenizer, WordPieceTokenizer, bert_pipeline
from tf_transformer.training.losses import MaskedAccuracy, SmoothedCrossentropy, TokenCrossentropy
from tf_transformer.training.optimizers import FusedAdam, WarmUpLinearDecay
from tf_transformer.training.runs.presets import LanguageModelPreset, PretrainingPreset
from tf_transformer.training.runs.run import Run


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
        data = [*self.train_documents, None, *self.validation_documents]
        return {"preset": dataclasses.asdict(self.preset), "data": data}

    def _summary(self, batches):
        train, validation = map(len, self.parts)
        return f"{train} documents to train on, {validation} held out"

    def schedule(self, total_steps):
        """Return the learning rate schedule."""
        warmup = min(int(self.preset.warmup_share * total_steps), total_steps - 1)
        return WarmUpLinearDecay(self.preset.peak_learning_rate, warmup, total_steps)

    def _optimizer(self, schedule):
        """Adam as for BERT and GPT-2: Devlin et al. 2019, appendix A.2."""
        adam = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": self.epsilon}
        decay = self.preset.weight_decay
        optimizer = FusedAdam(schedule, **adam, weight_decay=decay, global_clipnorm=1.0)
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        return optimizer

    def _loss_and_metrics(self):
        """Without smoothing, the loss is the mean over the real labels of a batch."""
        return SmoothedCrossentropy(label_smoothing=0.0), [MaskedAccuracy(), TokenCrossentropy()]


class LanguageModelRun(TextRun):
    """A folder with a training run of a `LanguageModel`: see `Run`; the files of a `TrainingRun`.

    The weights are not averaged, and the vocabulary is byte pair encoding. The sentences of a
    document are joined by spaces, and the document is cut into blocks, see `LanguageModelBatches`.
    Some of the documents are held out for validation.

    Args:
        folder: str or Path.
        source: `TextSource`, the documents.
        preset: `LanguageModelPreset`, the sizes.

    Example:
        >>> from tf_transformer.training import LANGUAGE_MODEL_PRESETS
        >>> source = TextSource(corpus="en-zh")
        >>> run = LanguageModelRun("runs/en", source, LANGUAGE_MODEL_PRESETS["tiny"])
        >>> len(run.validation_documents)
        2701
    """

    kind, command = "language model", "train-lm"
    preset_class = LanguageModelPreset

    @functools.cached_property
    def parts(self):
        """The documents to train on and those held out, lists of strings."""
        parts = split_documents(self.source.load(), self.preset.validation_share)
        return [[" ".join(document) for document in part] for part in parts]

    def _train_tokenizer(self):
        return BPETokenizer.train(self.train_documents, self.preset.vocab_size)

    def batches(self, tokenizer, documents):
        """Return batches of blocks of documents, a list of str: `LanguageModelBatches`."""
        marks = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        return LanguageModelBatches(tokenizer.encode(documents), **marks, **self.preset.batching)

    def new_model(self, tokenizer):
        """Create a model with the sizes of the preset."""
        settings = {"max_position": self.preset.lengths[-1], "name": "language_model"}
        return self.preset.new_model(LanguageModel, tokenizer.vocab_size, **settings)

    def perplexity(self, model):
        """Return the perplexity of the held-out documents, exp of the mean cross-entropy per token.

        It includes the end of each document, and cannot be compared between vocabularies.
        """

        @tf.function
        def loss_and_count(ids, labels):
            logits = tf.cast(model(ids, training=False), tf.float32)
            real = tf.cast(labels > 0, tf.float32)
            losses = smoothed_cross_entropy(labels, logits, 0.0) * real
            return tf.reduce_sum(losses), tf.reduce_sum(real)

        batches = self.batches(self.tokenizer, self.validation_documents)
        sums = [loss_and_count(*batch) for batch in batches.dataset(epochs=1)]
        loss, count = (sum(map(float, numbers)) for numbers in zip(*sums, strict=True))
        return math.exp(loss / count)


class PretrainingRun(TextRun):
    """A folder with a pretraining run of BERT; its files are those of a `LanguageModelRun`, and:

    vocab.txt, tokenizer_config.json    the vocabulary in BERT's form
    model/                              the best weights in Hugging Face's layout, the vocabulary

    Devlin et al. 2019, section 3.1: masked words, and next sentences if the documents have them.
    Without next sentences the columns of the history are `loss`, `token_loss` and `accuracy` of the
    masked words; with them `loss`, the sum, and `prediction_logits_...` and
    `seq_relationship_logits_...`. Each has a `val_...` on the held-out documents, whose pairs and
    masks are the same in every epoch. To train it and load its model: see `Run`.

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
        >>> from tf_transformer.training import PRETRAINING_PRESETS
        >>> source = TextSource(corpus="en-zh")
        >>> run = PretrainingRun("runs/en", source, PRETRAINING_PRESETS["tiny"])
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
        self.vocabulary, self.start = vocabulary, start

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
        file = self.start and os.path.join(self.start, "config.json")
        if file and os.path.isfile(file) and read_config(file).family is not None:
            return False  # DistilBERT and ELECTRA have no such head
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
        if not self.has_begun and self._given_vocabulary is None:
            return super()._facts()
        return {**super()._facts(), "vocabulary": _tokens(self.tokenizer)}

    def _summary(self, batches):
        tasks = "masked words and next sentences" if self.next_sentence else "masked words"
        return f"{super()._summary(batches)}; {tasks}"

    def _finish(self):
        """Also write the best model in Hugging Face's layout."""
        model = self.best_model()
        if current_workers().is_chief:
            model.save_pretrained(self.model_path, tokenizer_from=self.folder)
        return model

    def _train_tokenizer(self):
        if self._given_vocabulary is not None:
            return read_bert_vocabulary(self._given_vocabulary, self.preset.lowercase)
        texts = [sentence for document in self.train_documents for sentence in document]
        pipeline = bert_pipeline(self.preset.lowercase)
        return WordPieceTokenizer.train(texts, self.preset.vocab_size, pipeline)

    def _write_tokenizer(self, tokenizer, model):
        write_bert_vocabulary(self.folder, tokenizer, model.config.max_length)

    def _both_batches(self, tokenizer):
        train, validation = super()._both_batches(tokenizer)
        try:
            validation.steps_per_epoch  # noqa: B018  before anything is written
        except ArgumentError as error:
            got = f"{len(self.validation_documents)} of {len(self.train_documents)} others"
            raise ArgumentError("documents", "enough to hold some out", got, f"{error}") from error
        return train, validation

    def batches(self, tokenizer, documents):
        """Return `PretrainingBatches` of documents, lists of sentences."""
        preset = self.preset
        ids = iter(tokenizer.encode([text for document in documents for text in document]))
        documents = [[next(ids) for _ in document] for document in documents]
        # A sentence consisting only of unreadable characters has no tokens.
        documents = [[sentence for sentence in document if sentence] for document in documents]
        continues_word = None
        if preset.whole_words:
            continues_word = np.array([token.startswith("##") for token in _tokens(tokenizer)])
        return PretrainingBatches(
            [document for document in documents if document],
            tokenizer,
            next_sentence=self.next_sentence,
            continues_word=continues_word,
            rate=preset.mask_rate,
            **preset.batching,
        )

    def _loss_and_metrics(self):
        """The mean over the masked words, whose labels are 0 elsewhere, and over the pairs."""
        if not self.next_sentence:
            return super()._loss_and_metrics()
        each = {name: TextRun._loss_and_metrics(self) for name in self._outputs}
        losses = {name: loss for name, (loss, _) in each.items()}
        return losses, {name: metrics for name, (_, metrics) in each.items()}

    def _check_sizes(self, path, vocab_size):
        if self.start is None:  # whose sizes are not those of the preset
            super()._check_sizes(path, vocab_size)

    def new_model(self, tokenizer):
        """Create a model with the sizes of the preset or of the start."""
        preset, rate = self.preset, self.preset.dropout
        cls = BertForPreTraining if self.next_sentence else BertForMaskedLM
        dropout = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        if self.start is not None:
            model = cls.from_pretrained(self.start, new_head=None, **dropout)
            check_vocabulary(model, tokenizer, "start")
            most = model.config.max_length
            expected = f"at most {most}, the positions in {self.start}"
            check(preset.lengths[-1] <= most, "lengths", expected, preset.lengths)
            return model
        config = BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=preset.hidden_size,
            num_hidden_layers=preset.num_hidden_layers,
            num_attention_heads=preset.num_attention_heads,
            intermediate_size=preset.intermediate_size,
            max_position_embeddings=preset.lengths[-1],
            **dropout,
        )
        model = cls(config)
        model.build()
        return model


def _tokens(tokenizer):
    return tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
