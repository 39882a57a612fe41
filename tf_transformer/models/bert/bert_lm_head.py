"""The masked language model head.

Axes: M tokens, D hidden size, E width of the embeddings, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.models.bert.configured_layer import ConfiguredLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertLMHead(ConfiguredLayer):
    """LayerNorm(act(x W + b)) times the table of word embeddings, plus a bias per word.

    Devlin et al. 2019, section 3.1, task 1, and `get_masked_lm_output` in the published code.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.dense = FlatDense(
            config.embedding_width,
            get_activation(config.hidden_act),
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
            name="dense",
            dtype=self.dtype_policy,
        )
        self.norm = LayerNorm(config.layer_norm_eps, name="LayerNorm", dtype=self.dtype_policy)

    def build(self, rows_shape, table_shape=None):
        with keras.name_scope("transform"):
            self.dense.build((None, self.config.hidden_size))
            self.norm.build((None, self.config.embedding_width))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.config.vocab_size,), initializer="zeros"
        )

    def call(self, rows, table):
        rows = self.norm(self.dense(rows))  # (M, E)
        logits = tf.matmul(rows, tf.cast(table, rows.dtype), transpose_b=True)
        return tf.cast(logits, tf.float32) + tf.cast(self.output_bias, tf.float32)  # (M, V)
