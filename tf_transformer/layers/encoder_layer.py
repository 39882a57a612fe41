"""One layer of the encoder.

Axes: B batch, T length, D model width.
"""

import functools

import keras

from tf_transformer.layers.architecture import Architecture, with_architecture
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.feed_forwards.feed_forward import FeedForward
from tf_transformer.layers.feed_forwards.network import check_width
from tf_transformer.layers.norms.layer_norm import LayerNorm
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.positions.positions import part_config, with_part


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(NotesLayer, keras.layers.Layer):
    """Self-attention, then a feed-forward network, each followed by "add and norm".

    out = LayerNorm(x + Dropout(Sublayer(x))) twice (post-norm), "Attention Is All You Need",
    section 3.1. With `causal` and `step` it is the layer of a decoder-only model.

    Args:
        d_model: int, model width D.
        num_heads: int, number of heads; must divide `d_model` unless `key_dim` is set.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        activation: Keras activation of the feed-forward network; BERT uses "gelu".
        epsilon: float, added to the variance in layer normalisation; BERT uses 1e-12.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        architecture: None for that of the paper, with `activation` and `epsilon`; or an
            `Architecture`, which has its own.
        positions: the part of self-attention that tells the order of tokens, see
            `layers.positions`; None for a new one of the architecture.
        key_dim: None for that of the architecture; or int, the width of a head.

    Call arguments:
        x: float tensor (B, T, D).
        training: bool or None; dropout is only applied if true.
        mask: None, float (1.0 = blocked) or bool (True = may attend), see `MultiHeadAttention`.
        tokens: None, or bool tensor (B, T), False for padding, for a norm over the batch.
        causal: bool, True also blocks the future.
        return_attention_weights: True returns `(out, attention_weights)`.
        x_mask: None, or bool tensor (B, T), False for padding: blocked as well, and without
            `tokens` what a norm over the batch leaves out; by default the Keras mask of `x`, which
            is also that of the output.

    Returns:
        (B, T, D); with weights, also (B, N, T, T).

    Raises:
        ValueError: If the width of `x` is not `d_model`, so it cannot be added to the sublayer's
            output; see also `MultiHeadAttention`.

    Example:
        >>> EncoderLayer(8, 2, 32)(tf.ones((1, 3, 8)), False, None).shape.as_list()
        [1, 3, 8]
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        rate=0.1,
        *,
        activation="relu",
        epsilon=1e-6,
        jit="auto",
        architecture=None,
        positions=None,
        key_dim=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.activation = keras.activations.get(activation)
        self.epsilon = epsilon
        self.jit = jit
        self.architecture = architecture
        parts = architecture or Architecture(
            norm=LayerNorm(epsilon), feed_forward=FeedForward(self.activation)
        )
        if positions is None:
            positions = parts.positions.copy(dtype).for_layer()
        self.residual = parts.residual
        self.mha = parts.attention(
            d_model, num_heads, key_dim, jit=jit, positions=positions, name="mha", dtype=dtype
        )
        self.ffn_before, self.ffn = parts.feed_forward.networks(d_model, dff, dtype)
        self.layernorm1, self.layernorm2 = (
            parts.new_norm(name, dtype) for name in ("layernorm1", "layernorm2")
        )
        self.dropout1 = Dropout(rate, name="dropout1", dtype=dtype)
        self.dropout2 = Dropout(rate, name="dropout2", dtype=dtype)
        if self.ffn_before is not None:
            self.layernorm0 = parts.new_norm("layernorm0", dtype)
            self.dropout0 = Dropout(rate, name="dropout0", dtype=dtype)

    def build(self, x_shape):
        check_width(x_shape, self.d_model)
        self.mha.build(x_shape, x_shape, x_shape)
        for layer in (self.ffn, self.layernorm1, self.layernorm2, self.dropout1, self.dropout2):
            layer.build(x_shape)
        if self.ffn_before is not None:
            for layer in (self.ffn_before, self.layernorm0, self.dropout0):
                layer.build(x_shape)

    def call(
        self,
        x,
        training=None,
        mask=None,
        *,
        tokens=None,
        causal=False,
        return_attention_weights=False,
        x_mask=None,
    ):
        def attend(y):
            options = {"causal": causal, "k_mask": x_mask, "v_mask": x_mask}
            return self.mha(y, y, y, mask, return_attention_weights, **options)

        tokens = x_mask if tokens is None else tokens
        out, weights = self._sublayers(x, attend, training, tokens)
        return (out, weights) if return_attention_weights else out

    def step(self, x, cache, slot, mask=None, at=None):
        """Compute new positions against cached keys and values, as `call` with `causal=True`.

        Args:
            x: float tensor (B, T, D), the new positions.
            cache: from `mha.empty_cache`, then from the last `step`.
            slot, mask, at: see `MultiHeadAttention.step`.

        Returns:
            `(output, cache)`: (B, T, D) and the cache with the new keys and values.
        """
        return self._sublayers(x, lambda y: self.mha.step(y, cache, slot, mask, at))

    def _sublayers(self, x, attend, training=False, tokens=None):
        join = functools.partial(self.residual, training=training, tokens=tokens)
        if self.ffn_before is not None:
            x, _ = join(x, lambda y: (self.ffn_before(y), None), self.layernorm0, self.dropout0)
        x, other = join(x, attend, self.layernorm1, self.dropout1)
        x, _ = join(x, lambda y: (self.ffn(y), None), self.layernorm2, self.dropout2)
        return x, other

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "rate": self.rate,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "jit": self.jit,
            "architecture": self.architecture and self.architecture.to_dict(),
            "positions": part_config(self.mha.positions),
            "key_dim": self.mha.key_dim,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_part(with_architecture(config)))
