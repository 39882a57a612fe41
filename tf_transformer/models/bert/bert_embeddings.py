"""Embeddings of words, positions and segments.

Axes: B batch, T length, E width of the embeddings, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.norms.layer_norm import LayerNorm
from tf_transformer.models.bert.configured_layer import ConfiguredLayer
from tf_transformer.models.bert.drawn_kernel import DrawnKernel


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertEmbeddings(ConfiguredLayer):
    """LayerNorm(word + position + segment), then dropout.

    Devlin et al. 2019, section 3, figure 2. The three tables are named as in the published
    checkpoints.

    Args:
        config: `BertConfig`, or its dict.

    Call arguments:
        input_ids, token_type_ids: int32 or int64 tensors (B, T).
        training: bool or None; dropout is only applied if true.

    Returns:
        (B, T, E).

    Raises:
        ValueError: If T is larger than the table of positions, or in eager mode an id is out of
            range.
        tf.errors.InvalidArgumentError: If, in a graph, an id is out of range or T is too large. XLA
            cannot raise errors: there all outputs for that text are NaN.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> layer = BertEmbeddings(BertConfig(vocab_size=11, hidden_size=12))
        >>> ids = tf.constant([[1, 2, 10]])
        >>> layer(ids, tf.zeros_like(ids)).shape.as_list()
        [1, 3, 12]
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.norm = LayerNorm(config.layer_norm_eps, name="LayerNorm", dtype=self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)

    def build(self, input_shape):
        config, width = self.config, self.config.embedding_width
        initializer = DrawnKernel(stddev=config.initializer_range)
        for name, size in (
            ("word_embeddings", config.vocab_size),
            ("token_type_embeddings", config.type_vocab_size),
            ("position_embeddings", config.max_position_embeddings),
        ):
            table = self.add_weight(name=name, shape=(size, width), initializer=initializer.clone())
            setattr(self, name, table)
        self.norm.build((None, None, width))

    def call(self, input_ids, token_type_ids, training=None):
        config = self.config
        length = tf.shape(input_ids)[1]
        checks = [
            *_range_checks(input_ids, "input_ids", "vocab_size", config.vocab_size),
            *_range_checks(
                token_type_ids, "token_type_ids", "type_vocab_size", config.type_vocab_size
            ),
            *self._length_checks(input_ids),
        ]
        in_range = (
            (input_ids >= 0)
            & (input_ids < config.vocab_size)
            & (token_type_ids >= 0)
            & (token_type_ids < config.type_vocab_size)
        )
        input_ids, token_type_ids = (tf.cast(x, tf.int32) for x in (input_ids, token_type_ids))
        with tf.control_dependencies([check for check in checks if check is not None]):
            words = tf.gather(self._table(self.word_embeddings), input_ids)  # (B, T, E)
            positions = self._table(self.position_embeddings)[:length]  # (T, E)
        segments = tf.expand_dims(self._table(self.token_type_embeddings), 1)
        width = config.embedding_width
        # Every sum of a segment and a position: few rows. The last row is for ids out of range.
        added = tf.reshape(segments + positions, (-1, width))
        added = tf.concat([added, tf.fill((1, width), tf.constant(float("nan"), added.dtype))], 0)
        row = token_type_ids * length + tf.range(length)
        row = tf.where(in_range, row, config.type_vocab_size * length)
        return self.dropout(self.norm(words + tf.gather(added, row)), training=training)

    def _table(self, weight):
        return tf.cast(tf.convert_to_tensor(weight), self.compute_dtype)

    def _length_checks(self, input_ids):
        most = self.config.max_position_embeddings
        message = (
            f"input_ids: expected at most {most} tokens (max_position_embeddings), the "
            f"model's number of positions. Truncate the texts"
        )
        if input_ids.shape[1] is None:
            return [tf.debugging.assert_less_equal(tf.shape(input_ids)[1], most, message)]
        if input_ids.shape[1] > most:
            raise ValueError(f"{message}; got length {input_ids.shape[1]}.")
        return []


def _range_checks(ids, name, size_name, size):
    message = (
        f"{name}: expected ids in [0, {size}), the {size_name} of the config; do they come from "
        f"the model's vocabulary?"
    )
    if tf.executing_eagerly():
        outside = tf.boolean_mask(ids, (ids < 0) | (ids >= size))
        if tf.size(outside):
            raise ValueError(f"{message} Got {outside[0]}.")
        return []
    return [
        tf.debugging.assert_non_negative(ids, message),
        tf.debugging.assert_less(ids, tf.constant(size, ids.dtype), message),
    ]
