"""The layers of BERT.

Axes: M rows of a matrix of tokens, B batch, T length, N heads, D hidden size.
"""

import functools

import keras

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.architecture import Architecture, with_architecture
from tf_transformer.layers.base_layer import NotesLayer
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.multi_head_attention import check_heads
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.layers.positions import part_config, with_part
from tf_transformer.models.bert.attention import BertAttention, BERTSelfAttention, DrawnKernel
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.token_layout import token_rows


@keras.saving.register_keras_serializable(package="tf_transformer")
class ConfiguredLayer(NotesLayer, keras.layers.Layer):
    """Base class for the parts of BERT: `self.config`, and a Keras config that contains it."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.of(config)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerWithArchitecture(ConfiguredLayer):
    """Base class for the parts of BERT that depend on an `Architecture`."""

    def __init__(self, config, *, architecture=None, **kwargs):
        super().__init__(config, **kwargs)
        if architecture is not None and not isinstance(architecture, Architecture):
            raise ArgumentError(
                "architecture",
                "None or an Architecture",
                f"{architecture!r}",
                "For a dict use Architecture.from_dict.",
            )
        self.architecture = architecture

    def get_config(self):
        choice = self.architecture
        return {**super().get_config(), "architecture": choice and choice.to_dict()}

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))


@keras.saving.register_keras_serializable(package="tf_transformer")
class BERTLayerNorm(LayerNorm):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta over the last axis.

    Ba et al. 2016, "Layer Normalization", equation 4. Same as `layers.LayerNorm`, with BERT's
    epsilon and the width given by the config.

    Args:
        config: `BertConfig`, or its dict; `hidden_size` is used.
        variance_epsilon: float, added to the variance.

    Call arguments:
        inputs: float tensor (..., hidden_size).

    Returns:
        Tensor of the shape of `inputs`.

    Raises:
        ValueError: If the input has another width.

    Example:
        >>> norm = BERTLayerNorm(BertConfig(hidden_size=2, num_attention_heads=1))
        >>> norm(tf.constant([[1.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(self, config, variance_epsilon=1e-12, **kwargs):
        super().__init__(variance_epsilon, **kwargs)
        self.config = BertConfig.of(config)

    def build(self, input_shape):
        if input_shape[-1] != self.config.hidden_size:
            raise ArgumentError(
                "inputs",
                f"width {self.config.hidden_size} (hidden_size of the config)",
                f"shape {tuple(input_shape)}",
            )
        super().build(input_shape)

    def get_config(self):
        config = super().get_config()
        epsilon = config.pop("epsilon")
        return {**config, "config": self.config.to_dict(), "variance_epsilon": epsilon}


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
