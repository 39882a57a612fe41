"""The base of SavedModels that read texts with BERT.

Axes: B batch, T length.
"""

import functools

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.compile_for import (
    SmallBatches,
    in_bucket,
    warm_up_signature,
    warm_up_texts,
)
from tf_transformer.export.saving import save_module
from tf_transformer.models.bert.text_inputs import text_inputs
from tf_transformer.models.sizes import check_vocabulary

TEXTS = tf.TensorSpec((None,), tf.string, name="text")
_NAMES = ("input_ids", "token_type_ids", "attention_mask")
_INPUTS = {name: tf.TensorSpec((None, None), tf.int32, name=name) for name in _NAMES}


class TextModel(tf.Module):
    """A model of `tf_transformer.bert` with its tokenizer, made of core TensorFlow operations.

    Saved with `save`, it loads in a process that has only TensorFlow. Texts longer than the model's
    position table are truncated. `warm_up(rows, length)` compiles it for small batches, see
    `SmallBatches.warm_up`. A subclass adds functions, and a method `signatures` that returns the
    signatures of the SavedModel.

    Args:
        model: a built model, or `StoredWeights` of one.
        tokenizer: its `GraphTokenizer`.
        max_length: int, maximum number of tokens; None for all positions of the model.
        jit_compile: bool. False uses XLA for the small batches that `warm_up` compiled for. True
            compiles the model for each bucket, when the first batch falls into it: B is padded to a
            power of two, T to 8, 16, 32 and so on. That takes seconds; then a single text takes
            0.65 of the time with `unpad=False`, and 0.75 of that with `unpad=True`
            (benchmarks/bert/NOTES.md).
        function: None for `model(inputs, training=False)`; or function `(inputs, *settings) ->
            outputs` that uses the model's weights.
        settings: tuple of `tf.TensorSpec(())`, the further arguments of `function` and `compute`.

    Raises:
        ValueError: If the tokenizer has more tokens than the model, or `max_length` exceeds the
            position table.

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

    def __init__(
        self,
        model,
        tokenizer,
        max_length=None,
        jit_compile=False,
        *,
        function=None,
        settings=(),
    ):
        super().__init__(name=type(self).__name__.lower())
        config = model.config
        check_vocabulary(model, tokenizer)
        self._max_length = max_length or config.max_position_embeddings
        if self._max_length > config.max_position_embeddings:
            raise ArgumentError(
                "max_length",
                f"at most {config.max_position_embeddings} (max_position_embeddings)",
                max_length,
            )
        self.tokenizer = tokenizer
        # Keep the variables and the bound call, not the model: a Keras model tracked here would
        # have its weights saved twice.
        self.weights = [weight.value for weight in model.weights]
        self._resources = getattr(model, "resources", [])  # of `StoredWeights`
        call = function or functools.partial(model.__call__, training=False)
        by_xla = tf.function(call, jit_compile=True, autograph=False)

        def in_buckets(inputs, *settings):
            padded = tf.nest.map_structure(lambda ids: in_bucket(ids, self._max_length), inputs)
            rows = tf.shape(inputs["input_ids"])[0]
            return tf.nest.map_structure(lambda x: x[:rows], by_xla(padded, *settings))

        plain = in_buckets if jit_compile else call
        self._call = SmallBatches(by_xla, plain, _INPUTS, self._max_length, jit_compile, settings)
        self.warm_up = self._call.warm_up

    def compute(self, text, *settings):
        """Run the model on texts: string (B,) -> its outputs (B, ...); T may be a bucket's."""
        return self._call(text_inputs(self.tokenizer, text, None, self._max_length), *settings)

    def save(self, path):
        """Write a SavedModel with the signatures of the class, `warm_up`, and requests with which
        TensorFlow Serving warms it up.

        Args:
            path: str or Path of a folder; a SavedModel there is replaced at the end.

        Raises:
            FileExistsError: If the folder holds something else.
            OSError: If the disk is full or the folder cannot be written.
        """
        signatures = {**self.signatures(), "warm_up": warm_up_signature(self.warm_up)}
        save_module(self, path, signatures, warm_up_texts(self._max_length))
