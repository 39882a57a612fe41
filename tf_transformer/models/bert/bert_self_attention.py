"""Self-attention with the name and arguments used in the notes.

Axes: B batch, T length, D hidden size.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.models.bert.bert_attention import BertAttention
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.token_layout import padded_layout


@keras.saving.register_keras_serializable(package="tf_transformer")
class BERTSelfAttention(BertAttention):
    """Self-attention with an additive mask.

    softmax(Q K^T / sqrt(H) + attention_mask) V in each head, heads concatenated; Devlin et al.
    2019, section 3.

    Args:
        config: `BertConfig`, or its dict.
        num_heads: None for that of the config; or int, N, with the width that the config gives.
        jit: True, False or "auto", whether to compile the attention core with XLA.

    Call arguments:
        hidden_states: float tensor (B, T, D).
        attention_mask: None, or a float tensor that broadcasts to the scores (B, N, T, T) and is
            added to them: 0.0 = may attend, -10000.0 = blocked; see `additive_mask`.
        training: bool or None; dropout is only applied if true.
        hidden_states_mask: None, or bool tensor (B, T), False for padding, which is blocked as
            well; by default the Keras mask of `hidden_states`, which is also that of the output.

    Returns:
        (B, T, D).

    Raises:
        ValueError: If the input has another rank or width, or the mask is an integer or bool
            tensor and therefore not additive.

    Example:
        >>> layer = BERTSelfAttention(BertConfig(hidden_size=8, num_attention_heads=2))
        >>> layer(tf.ones((1, 3, 8)), tf.constant([[[[0.0, 0.0, -10000.0]]]])).shape.as_list()
        [1, 3, 8]
    """

    def __init__(self, config, *, num_heads=None, jit="auto", **kwargs):
        config = BertConfig.of(config)
        super().__init__(
            num_heads or config.num_attention_heads,
            config.head_size,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
            initializer_range=config.initializer_range,
            jit=jit,
            **kwargs,
        )
        self.config = config

    def build(self, hidden_states_shape):
        if hidden_states_shape[-1] != self.config.hidden_size:
            raise ArgumentError(
                "hidden_states",
                f"(batch, length, {self.config.hidden_size})",
                f"shape {tuple(hidden_states_shape)}",
            )
        super().build(hidden_states_shape, hidden_states_shape)

    def call(self, hidden_states, attention_mask=None, training=None, *, hidden_states_mask=None):
        if len(hidden_states.shape) != 3:
            raise ArgumentError(
                "hidden_states", "(batch, length, width)", f"shape {tuple(hidden_states.shape)}"
            )
        if attention_mask is not None and not attention_mask.dtype.is_floating:
            raise ArgumentError(
                "attention_mask",
                "floats to add to the scores",
                attention_mask.dtype.name,
                "Pass additive_mask(attention_mask).",
            )
        layout = padded_layout(*tf.unstack(tf.shape(hidden_states)[:2]))
        rows = layout.to_rows(hidden_states)
        mask = with_key_masks(None, hidden_states, hidden_states_mask)
        context, _ = self.attend(rows, rows, layout, layout, mask, attention_mask, training)
        context = layout.to_batch(context)
        context.set_shape(hidden_states.shape)
        return context

    def get_config(self):
        # The config replaces the arguments of `BertAttention`.
        config = keras.layers.Layer.get_config(self)
        heads = self.num_attention_heads
        return {**config, "config": self.config.to_dict(), "num_heads": heads, "jit": self.jit}
