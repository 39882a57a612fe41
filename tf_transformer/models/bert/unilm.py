"""BERT for text generation: the encoder with a sequence-to-sequence mask.

Axes: B batch, S source length, L maximum number of generated tokens, T = S + L, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import create_sequence_to_sequence_mask
from tf_transformer.functional.ids import as_ids, in_vocabulary
from tf_transformer.models.bert.heads import BertForMaskedLM
from tf_transformer.models.bert.pretrained_bert import dense_inputs


@keras.saving.register_keras_serializable(package="tf_transformer")
class UniLM(BertForMaskedLM):
    """A masked language model that was also trained with the sequence-to-sequence mask.

    Dong et al. 2019, "Unified Language Model Pre-training", section 2.3: segment 0 attends to
    itself; each token of segment 1 attends to segment 0 and the preceding tokens of segment 1, and
    predicts the next. UniLM and the Chinese SimBERT are trained like this; other BERT models
    generate nonsense.

    Args:
        config, unpad, jit, architecture: see `Bert`.

    Call arguments:
        See `BertForMaskedLM`; the mask follows from `token_type_ids`, and an `attention_mask`
            (B, T) blocks padding. One of (B, T, T) or (B, 1 or N, T, T) is used unchanged.

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
        inputs = dense_inputs(inputs)
        if "token_type_ids" in inputs:
            inputs = {**inputs, "attention_mask": _free(**inputs)}
        return super().call(inputs, training=training)

    def start(self, inp, max_length):
        """Create the initial state for `step`.

        Args:
            inp: integer tensor (B, S), `[CLS] text [SEP]`, 0 = padding at the end.
            max_length: int or scalar int32 tensor L, the maximum number of steps.

        Returns:
            A dict of tensors, the state before the first step. Pass `[SEP]` as the first token.

        Raises:
            ValueError: If S + L is larger than the model's table of positions.
        """
        inp = in_vocabulary(as_ids(inp, "inp"), self.config.vocab_size, "inp")
        longest = self.config.max_position_embeddings
        if isinstance(max_length, int) and inp.shape[1] and inp.shape[1] + max_length > longest:
            raise ArgumentError(
                "max_length",
                f"at most {longest - inp.shape[1]}, since source and output share "
                f"{longest} positions (max_position_embeddings)",
                max_length,
            )
        ids = tf.pad(tf.cast(inp, tf.int32), ((0, 0), (0, max_length)))  # (B, T)
        # The first step feeds the last token of the source.
        position = tf.reduce_sum(tf.cast(ids != 0, tf.int32), 1) - 1  # (B,)
        return {
            "ids": ids,
            "types": tf.zeros_like(ids),
            "position": position,
            "written": tf.constant(0),
        }

    def step(self, tokens, state):
        """Append one token to each text and predict the next.

        Each step recomputes the whole text.

        Args:
            tokens: integer tensor (B,), the source's `[SEP]` first.
            state: from `start`, then from the last `step`.

        Returns:
            `(logits, state)`: float tensor (B, V), and the state for the next step.
        """
        position = state["position"]  # (B,)
        here = tf.range(tf.shape(state["ids"])[1]) == tf.expand_dims(position, 1)  # (B, T)
        ids = tf.where(here, tf.expand_dims(tokens, 1), state["ids"])
        segment = tf.minimum(state["written"], 1)  # the source's [SEP] belongs to segment 0
        types = tf.where(here, segment, state["types"])
        seen = tf.sequence_mask(position + 1, tf.shape(ids)[1])  # (B, T), the tokens so far
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
    """Mask with True = may attend: bool (B, 1, T, T), or the given mask if it is not of rank 2."""
    padding = None if attention_mask is None else tf.convert_to_tensor(attention_mask)
    if padding is not None and padding.shape.rank != 2:
        return padding
    free = tf.equal(create_sequence_to_sequence_mask(token_type_ids), 0.0)
    if padding is None:
        return free
    return free & tf.cast(padding, tf.bool)[:, tf.newaxis, tf.newaxis]
