"""The decoder: embedding, positions, N layers.

Axes: B batch, T target length, S source length, K rows per sentence, C cache slots,
D model width, N heads, G heads of keys and values, H head width.
"""

import dataclasses
import functools

import keras
import tensorflow as tf

from tf_transformer.functional.attention.masks import check_keras_mask
from tf_transformer.functional.ids import as_ids
from tf_transformer.layers.architecture import (
    Architecture,
    check_layer_sizes,
    shared_layers,
    with_architecture,
)
from tf_transformer.layers.base_layer import NotesLayer, TakesIds
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.embeddings import TokenEmbedding
from tf_transformer.layers.feed_forwards import check_width
from tf_transformer.layers.multi_head_attention import MultiHeadAttention, check_heads
from tf_transformer.layers.positions import Positional_Encoding


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(NotesLayer, keras.layers.Layer):
    """Self-attention, attention to the encoder, feed-forward; each followed by "add and norm".

    "Attention Is All You Need", section 3.1, post-norm.

    Args:
        d_model: int, model width D.
        num_heads: int, number of heads; must divide `d_model` unless the architecture has a
            `key_dim`.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        architecture: None for the paper's, `Architecture()`; or another one.
        positions: None for a new part like `architecture.positions`, or a part that the layers of a
            stack share.
        cross_heads: None for `num_heads`, or int, the heads of the attention to the encoder.

    Call arguments:
        x: float tensor (B, T, D).
        enc_output: float tensor (B, S, D), the encoder's output.
        training: bool or None; dropout is only applied if true.
        look_ahead_mask: mask of the self-attention, see `MultiHeadAttention`.
        padding_mask: mask of the attention to the encoder.
        return_attention_weights: False returns None in place of both weights.
        causal: True blocks the future in the self-attention without a T x T mask;
            `look_ahead_mask` then only needs to block padding.
        tokens: None, or bool tensor (B, T), False for padding, for a norm over the batch.
        x_mask, enc_output_mask: None, or bool tensors (B, T) and (B, S), False for padding, which
            is blocked as well; by default the Keras masks of `x`, which `out3` inherits, and of
            `enc_output`. Without `tokens`, a norm over the batch uses `x_mask`.

    Returns:
        `(out3, weights_block1, weights_block2)`: (B, T, D), (B, N, T, T), (B, N, T, S).

    Raises:
        ValueError: If the width of `x` is not `d_model`, so it cannot be added to the sublayer's
            output; see also `MultiHeadAttention`.

    Example:
        >>> layer = DecoderLayer(8, 2, 32)
        >>> out, block1, block2 = layer(tf.ones((1, 3, 8)), tf.ones((1, 5, 8)), False, None, None)
        >>> out.shape.as_list(), block2.shape.as_list()
        ([1, 3, 8], [1, 2, 3, 5])
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        rate=0.1,
        *,
        architecture=None,
        positions=None,
        cross_heads=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model = d_model
        self.num_heads = num_heads
        self.cross_heads = cross_heads or num_heads
        self.dff = dff
        self.rate = rate
        self.architecture = parts = architecture or Architecture()
        self.residual = parts.residual
        self.mha1 = parts.self_attention(d_model, num_heads, positions, name="mha1", dtype=dtype)
        self.mha2 = MultiHeadAttention(
            d_model,
            self.cross_heads,
            key_dim=parts.key_dim,
            num_key_value_heads=parts.num_key_value_heads,
            name="mha2",
            dtype=dtype,
        )
        self.ffn_before, self.ffn = parts.feed_forward.networks(d_model, dff, dtype)
        self.layernorm1, self.layernorm2, self.layernorm3 = (
            parts.new_norm(f"layernorm{n}", dtype) for n in (1, 2, 3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (
            Dropout(rate, name=f"dropout{n}", dtype=dtype) for n in (1, 2, 3)
        )
        if self.ffn_before is not None:
            self.layernorm0 = parts.new_norm("layernorm0", dtype)
            self.dropout0 = Dropout(rate, name="dropout0", dtype=dtype)

    def build(self, x_shape, enc_output_shape):
        check_width(x_shape, self.d_model)
        self.mha1.build(x_shape, x_shape, x_shape)
        self.mha2.build(x_shape, enc_output_shape, enc_output_shape)
        self.ffn.build(x_shape)
        for layer in (self.layernorm1, self.layernorm2, self.layernorm3):
            layer.build(x_shape)
        for layer in (self.dropout1, self.dropout2, self.dropout3):
            layer.build(x_shape)
        if self.ffn_before is not None:
            for layer in (self.ffn_before, self.layernorm0, self.dropout0):
                layer.build(x_shape)

    def call(
        self,
        x,
        enc_output,
        training=None,
        look_ahead_mask=None,
        padding_mask=None,
        return_attention_weights=True,
        causal=False,
        *,
        tokens=None,
        x_mask=None,
        enc_output_mask=None,
    ):
        wanted = return_attention_weights
        own = {"k_mask": x_mask, "v_mask": x_mask}
        other = {"k_mask": enc_output_mask, "v_mask": enc_output_mask}
        return self._sublayers(
            x,
            lambda q: self.mha1(q, q, q, look_ahead_mask, wanted, causal=causal, **own),
            lambda q: self.mha2(q, enc_output, enc_output, padding_mask, wanted, **other),
            training,
            x_mask if tokens is None else tokens,
        )

    def step(self, x, cache, memory, slot, mask=None, padding_mask=None, at=None):
        """Decode new positions against cached keys and values, with the same result as `call`.

        Args:
            x: float tensor (B, T, D), the new positions.
            cache: from `mha1.empty_cache`, then from the last `step`.
            memory: two tensors (B, G, S, H), the encoder's output through `mha2.keys_values`.
            slot, mask: see `cached_attention`.
            padding_mask: mask of the attention to the encoder.
            at: see `MultiHeadAttention.step`.

        Returns:
            `(out3, cache)`: (B, T, D) and the cache with the new keys and values.
        """
        out, cache, _ = self._sublayers(
            x,
            lambda q: self.mha1.step(q, cache, slot, mask, at),
            lambda q: self.mha2.attend(q, *memory, padding_mask, return_attention_weights=False),
        )
        return out, cache

    def _sublayers(self, x, attend_to_self, attend_to_encoder, training=False, tokens=None):
        join = functools.partial(self.residual, training=training, tokens=tokens)
        if self.ffn_before is not None:
            x, _ = join(x, lambda y: (self.ffn_before(y), None), self.layernorm0, self.dropout0)
        x, other1 = join(x, attend_to_self, self.layernorm1, self.dropout1)
        x, other2 = join(x, attend_to_encoder, self.layernorm2, self.dropout2)
        x, _ = join(x, lambda y: (self.ffn(y), None), self.layernorm3, self.dropout3)
        return x, other1, other2

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "rate": self.rate,
            "architecture": self.architecture.to_dict(),
            "cross_heads": self.cross_heads,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))


@keras.saving.register_keras_serializable(package="tf_transformer")
class Decoder(TakesIds, NotesLayer, keras.layers.Layer):
    """A stack of decoder layers over embedded tokens.

    "Attention Is All You Need", section 3.1 and figure 1, right.

    Args:
        num_layers: int, number of layers.
        d_model, num_heads, dff, rate: see `DecoderLayer`.
        target_vocab_size: int, size of the target vocabulary.
        maximum_position_encoding: int, the longest target sentence in tokens.
        embedding: None, or a `keras.layers.Embedding` to share.
        architecture: None for the one of the paper and the notes,
            `Architecture(Positional_Encoding(maximum_position_encoding))`; or another one.
        layer_sizes: None, or `(num_heads, cross_heads, dff)` for each layer, see `Encoder`.

    Call arguments:
        x: integer tensor (B, T), target ids shifted right, 0 = padding.
        enc_output: float tensor (B, S, D).
        training, look_ahead_mask, padding_mask: see `DecoderLayer`.
        return_attention_weights: False returns an empty dict in place of the weights.
        causal: see `DecoderLayer`.
        x_mask, enc_output_mask: see `DecoderLayer`; by default the Keras masks of the ids and of
            `enc_output`.

    Returns:
        `(x, attention_weights)`: float tensor (B, T, D), and a dict with
        `decoder_layer{i}_block1` (B, N, T, T) and `decoder_layer{i}_block2` (B, N, T, S) for
        i = 1..num_layers.

    Raises:
        ValueError: If a sequence is longer than the positions of the architecture; see also
            `MultiHeadAttention`.

    Example:
        >>> decoder = Decoder(2, 8, 2, 32, 11, 16)
        >>> x, weights = decoder(tf.constant([[1, 5, 6]]), tf.ones((1, 5, 8)))
        >>> x.shape.as_list(), weights["decoder_layer2_block2"].shape.as_list()
        ([1, 3, 8], [1, 2, 3, 5])
    """

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        target_vocab_size,
        maximum_position_encoding,
        rate=0.1,
        *,
        embedding=None,
        architecture=None,
        layer_sizes=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.architecture = parts = architecture or Architecture(
            Positional_Encoding(maximum_position_encoding)
        )
        self.layer_sizes, sizes = None, [(num_heads, num_heads, dff)] * num_layers
        if layer_sizes is not None:
            names = ("num_heads", "cross_heads", "dff")
            sizes = check_layer_sizes(layer_sizes, num_layers, names)
            self.layer_sizes = sizes
            check_heads(d_model, num_heads, parts.key_dim, None, False)
            parts = dataclasses.replace(parts, key_dim=parts.key_dim or d_model // num_heads)
        positions = parts.positions.copy(self.dtype_policy)
        self.embedding = TokenEmbedding(
            target_vocab_size,
            d_model,
            maximum_position_encoding,
            rate,
            embedding,
            positions,
            parts.embedding_size,
            name="embedding",
            dtype=self.dtype_policy,
        )

        def layer(n):
            heads, cross_heads, units = sizes[n]
            return DecoderLayer(
                d_model,
                heads,
                units,
                rate,
                architecture=parts,
                positions=positions.for_layer(),
                cross_heads=cross_heads,
                name=f"layer{n}",
                dtype=self.dtype_policy,
            )

        self.dec_layers = shared_layers(layer, num_layers, parts.num_groups, layer_sizes)
        self.final_norm = None
        if parts.residual.final_norm:
            self.final_norm = parts.new_norm("final_norm", self.dtype_policy)

    def build(self, x_shape, enc_output_shape):
        self.embedding.build(x_shape)
        for layer in dict.fromkeys(self.dec_layers):
            layer.build((*x_shape, self.d_model), enc_output_shape)
        if self.final_norm is not None:
            self.final_norm.build((*x_shape, self.d_model))

    def call(
        self,
        x,
        enc_output,
        training=None,
        look_ahead_mask=None,
        padding_mask=None,
        return_attention_weights=True,
        causal=False,
        *,
        x_mask=None,
        enc_output_mask=None,
    ):
        x, enc_output = as_ids(x, self.ids_name), tf.cast(enc_output, self.compute_dtype)
        tokens = tf.not_equal(x, 0)
        if x_mask is not None:
            check_keras_mask(x_mask, x.shape)
            tokens &= x_mask
        x = self.embedding(x, training=training)
        attention_weights = {}
        for i, layer in enumerate(self.dec_layers, start=1):
            x, block1, block2 = layer(
                x,
                enc_output,
                training,
                look_ahead_mask,
                padding_mask,
                return_attention_weights,
                causal,
                tokens=tokens,
                x_mask=x_mask,
                enc_output_mask=enc_output_mask,
            )
            if return_attention_weights:
                attention_weights[f"decoder_layer{i}_block1"] = block1
                attention_weights[f"decoder_layer{i}_block2"] = block2
        if self.final_norm is not None:
            x = self.final_norm(x, training=training, tokens=tokens)
        return x, attention_weights

    def start(self, enc_output, slots):
        """Create the inputs of `step`: an empty cache, and the encoder's output as keys and values.

        Args:
            enc_output: float tensor (B, S, D).
            slots: int or scalar int32 tensor C, the number of tokens to decode per sentence, summed
                over its rows.

        Returns:
            `(caches, memories)`, each a list with one `(keys, values)` per layer: zeros
            (B, G, C, H), and (B, G, S, H).
        """
        batch_size = tf.shape(enc_output)[0]
        caches = [layer.mha1.empty_cache(batch_size, slots) for layer in self.dec_layers]
        memories = [layer.mha2.keys_values(enc_output, enc_output) for layer in self.dec_layers]
        return caches, memories

    def step(self, tokens, caches, memories, position, mask=None, padding_mask=None):
        """Decode one token per row against the cache.

        Args:
            tokens: integer tensor (B, K), the tokens at `position` of the K rows of each sentence;
                they are written to the slots from `position * K` on.
            caches, memories: from `start`; after the first step, the caches from the last `step`.
            position: scalar int32 tensor, 0 for the first token.
            mask: None if K = 1; or bool tensor (B, 1, K, C), True = may attend: the slots of a
                row's own history, including its new one.
            padding_mask: mask of the attention to the encoder.

        Returns:
            `(x, caches)`: float tensor (B, K, D), and the caches with the new keys and values.
        """
        slots = tf.shape(caches[0][0])[2]
        x, slot, at = self.embedding.step(tokens, position, slots)
        filled = []
        for layer, cache, memory in zip(self.dec_layers, caches, memories, strict=True):
            x, cache = layer.step(x, cache, memory, slot, mask, padding_mask, at)
            filled.append(cache)
        if self.final_norm is not None:
            x = self.final_norm(x, training=False)
        return x, filled

    def get_config(self):
        embedding = self.embedding.get_config()
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "target_vocab_size": embedding["vocab_size"],
            "maximum_position_encoding": embedding["max_position"],
            "rate": self.rate,
            "architecture": self.architecture.to_dict(),
            "layer_sizes": self.layer_sizes,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))
