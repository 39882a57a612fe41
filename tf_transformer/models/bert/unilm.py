"""BERT that writes: the encoder under a sequence-to-sequence mask.

Axes: B batch, S source length, L most tokens to write, T = S + L, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.attention.masks import create_sequence_to_sequence_mask
from tf_transformer.models.bert.bert_for_masked_lm import BertForMaskedLM


@keras.saving.register_keras_serializable(package="tf_transformer")
class UniLM(BertForMaskedLM):
    """A masked language model that was trained under the sequence-to-sequence mask too.

    Dong et al. 2019, "Unified Language Model Pre-training", section 2.3: segment 0 sees itself,
    every token of segment 1 sees segment 0 and what of segment 1 stands before it, and predicts the
    next. Trained so are UniLM and the Chinese SimBERT; any other BERT writes nonsense.

    Args:
        config, unpad, jit: see `Bert`.

    Call arguments:
        As `BertForMaskedLM`; the `token_type_ids` make the mask, in which an `attention_mask`
            (B, T) blocks padding. One of (B, T, T) or (B, 1 or N, T, T) is taken as it is.

    Example:
        >>> from tf_transformer.generation import greedy_decode
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = UniLM(BertConfig(13, 8, 2, 2, 16))
        >>> state = model.start(tf.constant([[2, 7, 3]]), max_length=4)
        >>> greedy_decode(
        ...     model.step, state, 1, start_id=3, end_id=3, max_length=4
        ... ).shape.as_list()
        [1, 4]
    """

    def call(self, inputs, training=None):
        if isinstance(inputs, dict) and "token_type_ids" in inputs:
            inputs = {**inputs, "attention_mask": _free(**inputs)}
        return super().call(inputs, training=training)

    def start(self, inp, max_length):
        """Make the state that `step` hands on.

        Args:
            inp: integer tensor (B, S), `[CLS] text [SEP]`, 0 = padding at the end.
            max_length: int or scalar int32 tensor L, the most steps to come.

        Returns:
            A dict of tensors, the state before the first step. Give `[SEP]` as the first token.

        Raises:
            ValueError: S + L is larger than the model's table of positions.
        """
        longest = self.config.max_position_embeddings
        if isinstance(max_length, int) and inp.shape[1] and inp.shape[1] + max_length > longest:
            raise ValueError(
                f"max_length: expected at most {longest - inp.shape[1]}, since source and output "
                f"share {longest} positions (max_position_embeddings), got {max_length}."
            )
        ids = tf.pad(tf.cast(inp, tf.int32), ((0, 0), (0, max_length)))  # (B, T)
        # The last token of the source is what the first step feeds.
        position = tf.reduce_sum(tf.cast(ids != 0, tf.int32), 1) - 1  # (B,)
        return {
            "ids": ids,
            "types": tf.zeros_like(ids),
            "position": position,
            "written": tf.constant(0),
        }

    def step(self, tokens, state):
        """Write one token into every text, predict the next.

        Every step computes the whole text anew.

        Args:
            tokens: integer tensor (B,), the source's `[SEP]` first.
            state: from `start`, then from the last `step`.

        Returns:
            `(logits, state)`: float tensor (B, V), and the state for the next step.
        """
        position = state["position"]  # (B,)
        here = tf.range(tf.shape(state["ids"])[1]) == tf.expand_dims(position, 1)  # (B, T)
        ids = tf.where(here, tf.expand_dims(tokens, 1), state["ids"])
        segment = tf.minimum(state["written"], 1)  # the source's own [SEP] is of segment 0
        types = tf.where(here, segment, state["types"])
        seen = tf.sequence_mask(position + 1, tf.shape(ids)[1])  # (B, T), what is written
        free = tf.equal(create_sequence_to_sequence_mask(types), 0.0)  # (B, 1, T, T)
        mask = free & seen[:, tf.newaxis, tf.newaxis]
        inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
        states = self.bert(inputs)["sequence_output"]
        logits = self.word_logits(states, tf.expand_dims(position, 1))[:, 0]
        state = {
            "ids": ids,
            "types": types,
            "position": position + 1,
            "written": state["written"] + 1,
        }
        return logits, state


def _free(token_type_ids, attention_mask=None, **_):
    """What may be attended to: bool (B, 1, T, T)."""
    padding = None if attention_mask is None else tf.convert_to_tensor(attention_mask)
    if padding is not None and padding.shape.rank != 2:
        return padding
    free = tf.equal(create_sequence_to_sequence_mask(token_type_ids), 0.0)
    if padding is None:
        return free
    return free & tf.cast(padding, tf.bool)[:, tf.newaxis, tf.newaxis]
