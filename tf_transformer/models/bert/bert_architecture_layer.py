"""One BERT layer with another architecture, on a matrix of tokens.

Axes: M tokens, B batch, N heads, T length, H head width, D hidden size.
"""

import functools

import keras

from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.multi_head_attention import check_heads
from tf_transformer.layers.positions import part_config, with_part
from tf_transformer.models.bert.bert_attention import BertAttention
from tf_transformer.models.bert.drawn_kernel import DrawnKernel
from tf_transformer.models.bert.layer_with_architecture import LayerWithArchitecture
from tf_transformer.models.bert.token_layout import token_rows


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertArchitectureLayer(LayerWithArchitecture):
    """`BertLayer` with the parts of an `Architecture`.

    The sublayers are those of `layers.EncoderLayer`; the dropout of attention weights and the
    initialization of attention are BERT's. Feed-forward networks keep the initialization of Keras,
    whose standard deviation is 0.023 in the size of BERT-base. `hidden_act` and `layer_norm_eps` of
    the config are not used, since the parts have their own.
    """

    def __init__(self, config, *, architecture, positions=None, group=0, jit="auto", **kwargs):
        super().__init__(config, architecture=architecture, **kwargs)
        config, dtype = self.config, self.dtype_policy
        width, (heads, inner) = config.hidden_size, config.size_of(group)
        groups, key_dim = architecture.num_key_value_heads, architecture.key_dim or config.head_size
        check_heads(width, heads, key_dim, groups, architecture.share_qk)
        if positions is None:
            positions = architecture.positions.copy(dtype, name="positions").for_layer()
        self.group = group
        self.jit = jit
        self.attention = BertAttention(
            heads,
            key_dim,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
            initializer_range=config.initializer_range,
            jit=jit,
            positions=positions,
            num_key_value_heads=groups,
            share_qk=architecture.share_qk,
            window=architecture.window,
            name="self",
            dtype=dtype,
        )
        self.attention_output = FlatDense(
            width,
            kernel_initializer=DrawnKernel(stddev=config.initializer_range),
            name="output",
            dtype=dtype,
        )
        self.ffn_before, self.ffn = architecture.feed_forward.networks(width, inner, dtype)
        self.attention_norm, self.ffn_norm = (
            architecture.new_norm(name, dtype) for name in ("attention_norm", "ffn_norm")
        )
        self.dropout1, self.dropout2 = (
            Dropout(config.hidden_dropout_prob, dtype=dtype) for _ in range(2)
        )
        if self.ffn_before is not None:
            self.ffn_before_norm = architecture.new_norm("ffn_before_norm", dtype)
            self.dropout0 = Dropout(config.hidden_dropout_prob, dtype=dtype)

    def build(self, rows_shape):
        attention = self.attention
        heads_shape = (*rows_shape[:-1], attention.num_attention_heads * attention.size_per_head)
        with keras.name_scope("attention"):
            attention.build(rows_shape, rows_shape)
            self.attention_output.build(heads_shape)
        for layer in (self.attention_norm, self.ffn, self.ffn_norm):
            layer.build(rows_shape)
        if self.ffn_before is not None:
            self.ffn_before.build(rows_shape)
            self.ffn_before_norm.build(rows_shape)

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

        def attend(y):
            context, weights = self.attention.attend(
                y, y, layout, layout, mask, bias, training, return_attention_weights
            )
            return self.attention_output(context), weights

        join = functools.partial(
            self.architecture.residual, training=training, tokens=token_rows(mask, layout)
        )
        if self.ffn_before is not None:
            rows, _ = join(
                rows, lambda y: (self.ffn_before(y), None), self.ffn_before_norm, self.dropout0
            )
        rows, weights = join(rows, attend, self.attention_norm, self.dropout1)
        rows, _ = join(rows, lambda y: (self.ffn(y), None), self.ffn_norm, self.dropout2)
        return rows, weights

    def get_config(self):
        positions = part_config(self.attention.positions)
        config = {"positions": positions, "group": self.group, "jit": self.jit}
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        return super().from_config(with_part(config))
