"""The base of SavedModels that read texts with BERT.

Axes: B batch, T length.
"""

import tensorflow as tf

from tf_transformer.data.replacing import replacing
from tf_transformer.export.buckets import in_bucket
from tf_transformer.models.bert.text_inputs import text_inputs

TEXTS = tf.TensorSpec((None,), tf.string, name="text")


class TextModel(tf.Module):
    """A model of `tf_transformer.bert` with its tokenizer, made of core TensorFlow operations.

    Saved with `save`, it loads in a process that has only TensorFlow. Texts longer than the model's
    position table are truncated. A subclass adds functions, and a method `signatures` that returns
    the signatures of the SavedModel.

    Args:
        model: a built model.
        tokenizer: its `GraphTokenizer`.
        max_length: int, maximum number of tokens; None for all positions of the model.
        jit_compile: bool. True compiles the model with XLA for each bucket, when the first batch
            falls into it: B is padded to a power of two, T to 8, 16, 32 and so on. That takes
            seconds; then a single text takes 0.65 of the time with `unpad=False`, and 0.75 of that
            with `unpad=True` (benchmarks/bert/NOTES.md).

    Raises:
        ValueError: If the vocabulary of the model is not the tokenizer's, `max_length` exceeds the
            position table, or `jit_compile` is used with `unpad=True`, which XLA cannot compile.

    Example:
        >>> import tempfile, pathlib
        >>> from tf_transformer.models.bert import Bert, BertConfig
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = Bert(BertConfig(7, 8, 1, 2, 9))
        >>> model.build()
        >>> outputs = TextModel(model, read_tokenizer(folder)).compute(tf.constant(["a b"]))
        >>> outputs["pooled_output"].shape.as_list()
        [1, 8]
    """

    def __init__(self, model, tokenizer, max_length=None, jit_compile=False):
        super().__init__(name=type(self).__name__.lower())
        config = model.config
        if config.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                f"tokenizer: expected {config.vocab_size} tokens, as the model has, got "
                f"{tokenizer.vocab_size}. Use the vocabulary that the model was trained with."
            )
        self._max_length = max_length or config.max_position_embeddings
        if self._max_length > config.max_position_embeddings:
            raise ValueError(
                f"max_length: expected at most {config.max_position_embeddings} "
                f"(max_position_embeddings), got {max_length}."
            )
        if jit_compile and model.unpad:
            raise ValueError(
                "jit_compile: expected a model with unpad=False, got one with unpad=True, whose "
                "shapes XLA cannot know. Create the model with unpad=False."
            )
        self._jit_compile = jit_compile
        self.tokenizer = tokenizer
        # Keep the variables and the bound call, not the model: a Keras model tracked here would
        # have its weights saved twice.
        self.weights = [weight.value for weight in model.weights]
        self._call = model.__call__

    def compute(self, text):
        """Run the model on texts: string (B,) -> its outputs, whose axis 0 is B."""
        inputs = text_inputs(self.tokenizer, text, None, self._max_length)
        if not self._jit_compile:
            return self._call(inputs, training=False)
        inputs = {name: in_bucket(ids, self._max_length) for name, ids in inputs.items()}
        compiled = tf.function(self._call, jit_compile=True, autograph=False)
        rows = tf.shape(text)[0]
        return tf.nest.map_structure(lambda x: x[:rows], compiled(inputs, training=False))

    def save(self, path):
        """Write a SavedModel.

        Args:
            path: str or Path of a folder; a SavedModel there is replaced at the end.

        Raises:
            FileExistsError: If the folder holds something else.
            OSError: If the disk is full or the folder cannot be written.
        """
        with replacing(path, only_with="saved_model.pb") as beside:
            tf.saved_model.save(self, str(beside), self.signatures())
