"""BERT for masked language modelling.

Axes: B batch, T length, P masked positions, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.ids import as_ids
from tf_transformer.models.bert.bert_lm_head import BertLMHead
from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.pretrained_bert import dense_inputs


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForMaskedLM(BertWithHead):
    """Logits of every word at every position, or at the requested positions.

    Devlin et al. 2019, section 3.1, task 1.

    Args:
        config, unpad, jit, architecture: see `Bert`.

    Call arguments:
        inputs: dict, see `Bert`; with `masked_lm_positions`, an integer tensor (B, P), logits are
            only computed at these positions.
        training: bool or None; dropout is only applied if true.

    Returns:
        float32 tensor (B, T, V) or (B, P, V), logits.

    Raises:
        ValueError: If the config has an output layer of its own, `tie_word_embeddings=False`.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = BertForMaskedLM(BertConfig(13, 8, 2, 2, 16))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 3, 13]
    """

    published_as = "BertForMaskedLM"
    head_scope = "cls/predictions/"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        if not self.config.tie_word_embeddings:
            raise ArgumentError(
                "tie_word_embeddings",
                (
                    f"True for {type(self).__name__}, whose output layer is the table of word "
                    "embeddings"
                ),
                "False",
                ("If the checkpoint has the same numbers in both, pass tie_word_embeddings=True."),
            )
        self.predictions = BertLMHead(self.config, name="predictions", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.predictions.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        inputs, positions = split_positions(inputs)
        outputs = self.bert(inputs, training=training)
        return self.word_logits(outputs["sequence_output"], positions)

    def word_logits(self, states, positions=None):
        """Compute the logits of the words at some positions.

        Args:
            states: float tensor (B, T, D).
            positions: None, or an integer tensor (B, P).

        Returns:
            float32 tensor (B, T, V) or (B, P, V); under XLA, NaN for a position out of range.

        Raises:
            tf.errors.InvalidArgumentError: If a position is out of range, except under XLA.
        """
        if positions is not None:
            positions = as_ids(positions, "masked_lm_positions")
            inside = (positions >= 0) & (positions < tf.shape(states, positions.dtype)[1])
            states = tf.gather(states, positions, batch_dims=1)
            # XLA raises no errors and would clamp the position.
            nan = tf.constant(float("nan"), states.dtype)
            states = tf.where(tf.expand_dims(inside, -1), states, nan)
        rows = tf.reshape(states, (-1, states.shape[-1]))
        logits = self.predictions(rows, self.bert.embeddings.word_embeddings)
        shape = tf.concat([tf.shape(states)[:2], [self.config.vocab_size]], 0)
        logits = tf.reshape(logits, shape)
        logits.set_shape((*states.shape[:2], self.config.vocab_size))
        return logits


def split_positions(inputs):
    """Split off `masked_lm_positions`, or None, from the inputs of `Bert`."""
    inputs = dense_inputs(inputs)
    return inputs, inputs.pop("masked_lm_positions", None)
