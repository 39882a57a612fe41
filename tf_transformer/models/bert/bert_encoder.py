"""The stack of BERT layers.

Axes: B batch, F length of the queries, T length of the keys (the same), N heads, D hidden size,
M tokens.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import additive_mask, with_key_masks
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.models.bert.bert_architecture_layer import BertArchitectureLayer
from tf_transformer.models.bert.bert_layer import BertLayer
from tf_transformer.models.bert.drawn_kernel import DrawnKernel
from tf_transformer.models.bert.layer_with_architecture import LayerWithArchitecture
from tf_transformer.models.bert.token_layout import padded_layout, token_rows


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertEncoder(LayerWithArchitecture):
    """A stack of BERT layers; with groups, adjacent layers share weights.

    Devlin et al. 2019, section 3; weight sharing and narrower embeddings follow Lan et al. 2020,
    "ALBERT", section 3.1.
    """

    def __init__(self, config, *, jit="auto", **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.jit = jit
        self.embedding_mapping = None
        if config.embedding_size is not None:
            self.embedding_mapping = FlatDense(
                config.hidden_size,
                kernel_initializer=DrawnKernel(stddev=config.initializer_range),
                name="embedding_hidden_mapping_in",
                dtype=self.dtype_policy,
            )
        self.final_norm = None
        options = [
            {"group": n, "jit": jit, "name": f"layer_{n}", "dtype": self.dtype_policy}
            for n in range(config.num_groups)
        ]
        if self.architecture is None:
            self.groups = [BertLayer(config, **one) for one in options]
            return
        parts = self.architecture
        positions = parts.positions.copy(self.dtype_policy, name="positions")
        self.groups = [
            BertArchitectureLayer(
                config, architecture=parts, positions=positions.for_layer(), **one
            )
            for one in options
        ]
        if parts.residual.final_norm:
            self.final_norm = parts.new_norm("final_norm", self.dtype_policy)

    def build(self, input_shape):
        width = self.config.embedding_width
        if input_shape[-1] != width:
            raise ArgumentError(
                "input_tensor",
                f"width {width}, for the residual connections",
                f"shape {tuple(input_shape)}",
            )
        if self.embedding_mapping is not None:
            self.embedding_mapping.build((None, width))
        for layer in self.groups:
            layer.build((None, self.config.hidden_size))
        if self.final_norm is not None:
            self.final_norm.build((None, self.config.hidden_size))

    def call(self, input_tensor, attention_mask=None, training=None, *, input_tensor_mask=None):
        layout = padded_layout(*tf.unstack(tf.shape(input_tensor)[:2]))
        mask, bias = None, None if attention_mask is None else additive_mask(attention_mask)
        if self.architecture is not None and bias is not None:  # its positions may need the bias
            mask, bias = tf.equal(bias, 0.0), None  # (B, 1, F or 1, T)
        padding = with_key_masks(None, input_tensor, input_tensor_mask)  # (B, 1, T)
        if padding is not None:
            mask = padding if mask is None else mask & tf.expand_dims(padding, 1)
        outputs, _ = self.forward(layout.to_rows(input_tensor), layout, mask, bias, training)
        outputs = [layout.to_batch(rows) for rows in outputs[1:]]
        for output in outputs:
            output.set_shape((*input_tensor.shape[:2], self.config.hidden_size))
        return outputs

    def forward(
        self,
        rows,
        layout,
        mask=None,
        bias=None,
        training=None,
        return_attention_weights=False,
    ):
        """Compute all layers on a matrix of tokens."""
        outputs, weights = [self.widened(rows)], []
        for n in range(self.config.num_hidden_layers):
            rows, attention = self.forward_layer(
                n, outputs[-1], layout, mask, bias, training, return_attention_weights
            )
            outputs.append(rows)
            weights.append(attention)
        return outputs, weights

    def widened(self, x):
        """Map embeddings to the width of the layers, if they are narrower."""
        return x if self.embedding_mapping is None else self.embedding_mapping(x)

    def forward_layer(self, n, rows, layout, mask=None, bias=None, training=None, weights=False):
        """Compute layer n, from 0, and after the last one the final norm; see `forward`."""
        layer = self.groups[self.config.group_of(n)]
        rows, attention = layer.forward(rows, layout, mask, bias, training, weights)
        if self.final_norm is not None and n == self.config.num_hidden_layers - 1:
            tokens = token_rows(mask, layout)
            rows = self.final_norm(rows, training=training, tokens=tokens)
        return rows, attention

    def compute_mask(self, inputs, previous_mask=None):
        """The Keras mask of the input, for each output."""
        return [super().compute_mask(inputs)] * self.config.num_hidden_layers

    def get_config(self):
        return {**super().get_config(), "jit": self.jit}
