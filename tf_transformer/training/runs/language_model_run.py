"""A training run of a language model in a folder, from plain text to the best weights."""

import functools
import math

import tensorflow as tf

from tf_transformer.data import LanguageModelBatches, split_documents
from tf_transformer.functional.cross_entropy import smoothed_cross_entropy
from tf_transformer.models import LanguageModel
from tf_transformer.tokenizers import BPETokenizer
from tf_transformer.training.runs.presets import LanguageModelPreset
from tf_transformer.training.runs.run import TextRun


class LanguageModelRun(TextRun):
    """A folder with a training run of a `LanguageModel`.

    run.json            settings and texts, everything needed to start over
    architecture.json   the parts of the model, if they are not the paper's
    tokenizer.json      the vocabulary: byte pair encoding
    best.weights.h5     weights of the epoch with the lowest validation loss per token
    checkpoints/        everything needed to resume
    history.csv         loss, loss per token and accuracy of every epoch

    The sentences of a document are joined by spaces, and the document is cut into blocks, see
    `LanguageModelBatches`. Some of the documents are held out for validation.

    To train it, open it again and load its model: see `Run`.

    Args:
        folder: str or Path.
        source: `TextSource`, the documents.
        preset: `LanguageModelPreset`, the sizes.

    Example:
        >>> from tf_transformer.data import TextSource
        >>> from tf_transformer.training.runs.presets import LANGUAGE_MODEL_PRESETS
        >>> preset = LANGUAGE_MODEL_PRESETS["tiny"]
        >>> run = LanguageModelRun("runs/en", TextSource(corpus="en-zh"), preset)
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
        """The vocabulary of a new run."""
        return BPETokenizer.train(self.train_documents, self.preset.vocab_size)

    def batches(self, tokenizer, documents):
        """Return batches of blocks of documents.

        Args:
            tokenizer: `Tokenizer` of the run.
            documents: list of str.

        Returns:
            `LanguageModelBatches`.
        """
        return LanguageModelBatches(
            tokenizer.encode(documents),
            start_id=tokenizer.start_id,
            end_id=tokenizer.end_id,
            lengths=self.preset.lengths,
            tokens_per_batch=self.preset.tokens_per_batch,
            seed=self.preset.seed,
        )

    def new_model(self, tokenizer):
        """Create a model with the sizes of the preset."""
        preset = self.preset
        model = LanguageModel(
            preset.num_layers,
            preset.d_model,
            preset.num_heads,
            preset.dff,
            tokenizer.vocab_size,
            max_position=preset.lengths[-1],
            rate=preset.rate,
            architecture=preset.new_architecture(),
            name="language_model",
        )
        model.build()
        return model

    def perplexity(self, model):
        """Return the perplexity of the held-out documents, exp of the mean cross-entropy per token.

        The result does not depend on batching and includes the end of each document. It cannot be
        compared between different vocabularies.

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

        batches = self.batches(self.tokenizer, self.validation_documents)
        sums = [loss_and_count(*batch) for batch in batches.dataset(epochs=1)]
        loss, count = (sum(map(float, numbers)) for numbers in zip(*sums, strict=True))
        return math.exp(loss / count)
