"""One BERT layer on a matrix of tokens.

Axes: M tokens, D hidden size.
"""

import keras

from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.models.bert.bert_layer_norm import BERTLayerNorm
from tf_transformer.models.bert.bert_self_attention import BERTSelfAttention
from tf_transformer.models.bert.configured_layer import ConfiguredLayer
from tf_transformer.models.bert.drawn_kernel import DrawnKernel


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertLayer(ConfiguredLayer):
    """Self-attention and a feed-forward network, each followed by dropout, "add and norm".

    Devlin et al. 2019, section 3. Its variables are named as in the published checkpoints, from
    `attention/self/query/kernel` to `output/LayerNorm/beta`.
    """

    def __init__(self, config, *, group=0, jit="auto", **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.group = group
        self.jit = jit
        dtype = self.dtype_policy
        kernel = DrawnKernel(stddev=config.initializer_range)
        width, (heads, inner) = config.hidden_size, config.size_of(group)
        self.attention = BERTSelfAttention(
            config, num_heads=heads, jit=jit, name="self", dtype=dtype
        )
        self.attention_output = FlatDense(
            width, kernel_initializer=kernel, name="dense", dtype=dtype
        )
        self.attention_norm = BERTLayerNorm(
            config, config.layer_norm_eps, name="LayerNorm", dtype=dtype
        )
        self.intermediate = FlatDense(
            inner,
            get_activation(config.hidden_act),
            kernel_initializer=kernel.clone(),
            name="dense",
            dtype=dtype,
        )
        self.output_dense = FlatDense(
            width, kernel_initializer=kernel.clone(), name="dense", dtype=dtype
        )
        self.output_norm = BERTLayerNorm(
            config, config.layer_norm_eps, name="LayerNorm", dtype=dtype
        )
        self.dropout1 = Dropout(config.hidden_dropout_prob, dtype=dtype)
        self.dropout2 = Dropout(config.hidden_dropout_prob, dtype=dtype)

    def build(self, rows_shape):
        inner = (*rows_shape[:-1], self.intermediate.units)
        heads = (*rows_shape[:-1], self.attention.query.units)
        with keras.name_scope("attention"):
            self.attention.build((None, *rows_shape))
            with keras.name_scope("output"):
                self.attention_output.build(heads)
                self.attention_norm.build(rows_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(rows_shape)
        with keras.name_scope("output"):
            self.output_dense.build(inner)
            self.output_norm.build(rows_shape)

    def forward(
        self,
        rows,
        layout,
        mask=None,
        bias=None,
        training=None,
        return_attention_weights=False,
    ):
        """Compute the layer."""
        context, weights = self.attention.attend(
            rows, rows, layout, layout, mask, bias, training, return_attention_weights
        )
        attended = self.dropout1(self.attention_output(context), training=training)
        rows = self.attention_norm(rows + attended)
        inner = self.output_dense(self.intermediate(rows))
        return self.output_norm(rows + self.dropout2(inner, training=training)), weights

    def get_config(self):
        return {**super().get_config(), "group": self.group, "jit": self.jit}
