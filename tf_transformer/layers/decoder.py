"""The decoder: embedding, positions, N layers.

Axes: B batch, T target length, S source length, K rows per sentence, C cache slots,
D model width, N heads, G heads of keys and values, H head width.
"""

import functools

import keras
import tensorflow as tf

from tf_transformer.layers.architecture import Architecture, HasArchitecture
from tf_transformer.layers.base_layer import attributes
from tf_transformer.layers.encoder import Stack, run_layer
from tf_transformer.layers.feed_forwards import check_width
from tf_transformer.layers.residuals import Dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(HasArchitecture, keras.layers.Layer):
    """Self-attention, attention to the encoder, feed-forward; each followed by "add and norm".

    "Attention Is All You Need", section 3.1, post-norm.

    Args:
        d_model, num_heads, dff, rate, architecture, positions: see `EncoderLayer`.
        cross_heads: None for `num_heads`, or int, the heads of the attention to the encoder.

    Call arguments:
        x: float tensor (B, T, D).
        enc_output: float tensor (B, S, D), the encoder's output.
        look_ahead_mask: mask of the self-attention, see `MultiHeadAttention`.
        padding_mask: mask of the attention to the encoder.
        return_attention_weights: see `MultiHeadAttention`; False returns None for both weights.
        causal: True blocks the future in the self-attention without a T x T mask;
            `look_ahead_mask` then only needs to block padding.
        training, tokens: see `EncoderLayer`.
        x_mask, enc_output_mask: None, or bool tensors (B, T) and (B, S); see `EncoderLayer`.

    Returns:
        `(out3, weights_block1, weights_block2)`: (B, T, D), (B, N, T, T), (B, N, T, S).

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
        self.d_model, self.num_heads, self.dff, self.rate = d_model, num_heads, dff, rate
        self.cross_heads = cross_heads or num_heads
        self.architecture = parts = architecture or Architecture()
        self.residual = parts.residual
        self.mha1 = parts.self_attention(d_model, num_heads, positions, name="mha1", dtype=dtype)
        self.mha2 = parts.cross_attention(d_model, self.cross_heads, name="mha2", dtype=dtype)
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
        self._build_rest(x_shape)

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
        encoders = {"k_mask": enc_output_mask, "v_mask": enc_output_mask}
        return self._sublayers(
            x,
            lambda q: self.mha1(q, q, q, look_ahead_mask, wanted, causal=causal, **own),
            lambda q: self.mha2(q, enc_output, enc_output, padding_mask, wanted, **encoders),
            training,
            x_mask if tokens is None else tokens,
        )

    def step(self, x, cache, memory, slot, mask=None, padding_mask=None, token_positions=None):
        """As `call`, from cached positions and the encoder's `memory`, from `mha2.keys_values`."""
        out, cache, _ = self._sublayers(
            x,
            lambda q: self.mha1.step(q, cache, slot, mask, token_positions),
            lambda q: self.mha2.attend(q, *memory, padding_mask, return_attention_weights=False),
        )
        return out, cache

    def _sublayers(self, x, attend_to_self, attend_to_encoder, training=False, tokens=None):
        join = functools.partial(self.residual, training=training, tokens=tokens)
        if self.ffn_before is not None:
            x, _ = join(x, lambda y: (self.ffn_before(y), None), self.layernorm0, self.dropout0)
        x, extra1 = join(x, attend_to_self, self.layernorm1, self.dropout1)
        x, extra2 = join(x, attend_to_encoder, self.layernorm2, self.dropout2)
        x, _ = join(x, lambda y: (self.ffn(y), None), self.layernorm3, self.dropout3)
        return x, extra1, extra2  # see `EncoderLayer`

    def get_config(self):
        fields = attributes(self, "d_model", "num_heads", "dff", "rate", "cross_heads")
        return {**super().get_config(), **fields}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Decoder(Stack):
    """A stack of decoder layers over embedded tokens.

    "Attention Is All You Need", section 3.1 and figure 1, right.

    Args:
        num_layers, d_model, num_heads, dff, rate, embedding, architecture, pad_id: see `Encoder`.
        target_vocab_size: int, size of the target vocabulary.
        maximum_position_encoding: int, the longest target sentence in tokens.
        layer_sizes: None, or `(num_heads, cross_heads, dff)` for each layer, see `Encoder`.

    Call arguments:
        x: integer tensor (B, T), target ids shifted right.
        enc_output: float tensor (B, S, D).
        training, look_ahead_mask, padding_mask: see `DecoderLayer`.
        return_attention_weights: see `MultiHeadAttention`; False returns an empty dict.
        causal: see `DecoderLayer`.
        x_mask, enc_output_mask: see `DecoderLayer`.

    Returns:
        `(x, attention_weights)`: float tensor (B, T, D), and a dict with
        `decoder_layer{i}_block1` (B, N, T, T) and `decoder_layer{i}_block2` (B, N, T, S) for
        i = 1..num_layers.

    Raises:
        ValueError: See `Encoder`.

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
        pad_id=0,
        **kwargs,
    ):
        sizes = (num_layers, d_model, num_heads, dff, target_vocab_size, maximum_position_encoding)
        super().__init__(sizes, rate, embedding, architecture, pad_id, **kwargs)

        def layer(heads, cross_heads, units, **options):
            return DecoderLayer(d_model, heads, units, rate, cross_heads=cross_heads, **options)

        sizes = {"num_heads": num_heads, "cross_heads": num_heads, "dff": dff}
        self.dec_layers = self._new_layers(layer, layer_sizes, **sizes)
        self.final_norm = self._new_final_norm()

    def build(self, x_shape, enc_output_shape):
        self._build(self.dec_layers, x_shape, enc_output_shape)

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
        enc_output = tf.cast(enc_output, self.compute_dtype)
        x, tokens = self._embed(x, training, x_mask)
        attention_weights = {}
        options = {"training": training, "causal": causal, "tokens": tokens}
        options |= {"look_ahead_mask": look_ahead_mask, "padding_mask": padding_mask}
        options |= {"x_mask": x_mask, "enc_output_mask": enc_output_mask}
        options["return_attention_weights"] = return_attention_weights
        for i, layer in enumerate(self.dec_layers, start=1):
            x, block1, block2 = run_layer(layer, x, enc_output, **options)
            if return_attention_weights:
                attention_weights[f"decoder_layer{i}_block1"] = block1
                attention_weights[f"decoder_layer{i}_block2"] = block2
        return self._normalize(x, training, tokens), attention_weights

    def start(self, enc_output, slots):
        """Create the inputs of `step`: empty caches of C slots, and keys and values of the encoder.

        For `slots` see `Encoder.start`. Both lists, `(caches, memories)`, have one `(keys, values)`
        per layer, (B, G, C, H) and (B, G, S, H).
        """
        batch_size = tf.shape(enc_output)[0]
        caches = [layer.mha1.empty_cache(batch_size, slots) for layer in self.dec_layers]
        memories = [layer.mha2.keys_values(enc_output, enc_output) for layer in self.dec_layers]
        return caches, memories

    def step(self, tokens, caches, memories, position, mask=None, padding_mask=None):
        """Decode one token per row; see `Encoder.step`, and `start` for `memories`."""
        x, slot, token_positions = self.embedding.step(tokens, position, tf.shape(caches[0][0])[2])
        filled = []
        for layer, cache, memory in zip(self.dec_layers, caches, memories, strict=True):
            x, cache = layer.step(x, cache, memory, slot, mask, padding_mask, token_positions)
            filled.append(cache)
        return self._normalize(x), filled

    def get_config(self):
        return {**super().get_config(), "target_vocab_size": self.embedding.embedding.input_dim}
