"""BERT that makes one vector of a sentence.

Axes: B batch, T length, D hidden size.
"""

import keras
import tensorflow as tf

from tf_transformer.models.bert.bert_with_head import BertWithHead

POOLINGS = ("mean", "cls")


@keras.saving.register_keras_serializable(package="tf_transformer")
class SentenceEncoder(BertWithHead):
    """The mean of the tokens' vectors, or the first one, of length 1.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3: the product of two of them is the cosine
    of the angle between.

    Args:
        config, unpad, jit: see `Bert`.
        pooling: "mean" of all tokens that are no padding, or "cls", the first token.
        normalize: bool, True scales every vector to length 1.

    Call arguments:
        inputs, training: as of `Bert`; without an `attention_mask` every token counts.

    Returns:
        float32 tensor (B, D).

    Raises:
        ValueError: an unknown pooling; as `Bert`.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = SentenceEncoder(BertConfig(13, 8, 2, 2, 16))
        >>> vectors = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> vectors.shape.as_list(), round(float(tf.norm(vectors)), 4)
        ([1, 8], 1.0)
    """

    published_as = "BertModel"

    def __init__(self, config, *, pooling="mean", normalize=True, **kwargs):
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: expected one of {', '.join(POOLINGS)}, got {pooling!r}.")
        super().__init__(config, **kwargs)
        self.pooling = pooling
        self.normalize = normalize

    def call(self, inputs, training=None):
        states = self.bert(inputs, training=training)["sequence_output"]
        vectors = self._pool(tf.cast(states, tf.float32), inputs.get("attention_mask"))
        return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-24) if self.normalize else vectors

    def _pool(self, states, mask):
        if self.pooling == "cls":
            return states[:, 0]
        if mask is None:
            return tf.reduce_mean(states, axis=1)
        weights = tf.expand_dims(tf.cast(mask, states.dtype), -1)  # (B, T, 1)
        total = tf.reduce_sum(states * weights, axis=1)
        return total / tf.maximum(tf.reduce_sum(weights, axis=1), 1e-9)

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}
