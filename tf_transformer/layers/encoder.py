"""The encoder: embedding, positions, N layers.

Axes: B batch, S source length, D model width.
"""

import keras
import tensorflow as tf

from tf_transformer.layers.architecture import Architecture, with_architecture
from tf_transformer.layers.encoder_layer import EncoderLayer
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.layers.token_embedding import TokenEmbedding


@keras.saving.register_keras_serializable(package="tf_transformer")
class Encoder(NotesLayer, keras.layers.Layer):
    """A stack of encoder layers over embedded tokens.

    "Attention Is All You Need", section 3.1 and figure 1, left.

    Args:
        num_layers: int, number of layers.
        d_model, num_heads, dff, rate: see `EncoderLayer`.
        input_vocab_size: int, size of the source vocabulary.
        maximum_position_encoding: int, the longest source sentence in tokens.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        embedding: None, or a `keras.layers.Embedding` to share.
        architecture: None for that of the paper, with positions up to
            `maximum_position_encoding`; or an `Architecture`.

    Call arguments:
        x: integer tensor (B, S), token ids, 0 = padding.
        training: bool or None; dropout is only applied if true.
        mask: see `MultiHeadAttention`; usually `create_padding_mask(x)`.

    Returns:
        float tensor (B, S, D).

    Raises:
        ValueError: If a sequence is longer than `maximum_position_encoding` and there is no
            `architecture`; see also `MultiHeadAttention`.

    Example:
        >>> Encoder(2, 8, 2, 32, 11, 16)(tf.constant([[5, 6, 2]])).shape.as_list()
        [1, 3, 8]
    """

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        input_vocab_size,
        maximum_position_encoding,
        rate=0.1,
        *,
        jit="auto",
        embedding=None,
        architecture=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.rate = rate
        self.jit = jit
        self.architecture = architecture
        parts = architecture or Architecture()
        positions = None if architecture is None else parts.positions.copy(self.dtype_policy)
        self.embedding = TokenEmbedding(
            input_vocab_size,
            d_model,
            maximum_position_encoding,
            rate,
            embedding,
            positions,
            name="embedding",
            dtype=self.dtype_policy,
        )
        self.enc_layers = [
            EncoderLayer(
                d_model,
                num_heads,
                dff,
                rate,
                jit=jit,
                architecture=architecture,
                positions=positions and positions.for_layer(),
                name=f"layer{i}",
                dtype=self.dtype_policy,
            )
            for i in range(num_layers)
        ]
        self.final_norm = None
        if parts.residual.final_norm:
            self.final_norm = parts.new_norm("final_norm", self.dtype_policy)

    def build(self, x_shape):
        self.embedding.build(x_shape)
        for layer in self.enc_layers:
            layer.build((*x_shape, self.d_model))
        if self.final_norm is not None:
            self.final_norm.build((*x_shape, self.d_model))

    def call(self, x, training=None, mask=None):
        tokens = tf.not_equal(x, 0)
        x = self.embedding(x, training=training)
        for layer in self.enc_layers:
            x = layer(x, training, mask, tokens=tokens)
        if self.final_norm is not None:
            x = self.final_norm(x, training=training, tokens=tokens)
        return x

    def get_config(self):
        embedding = self.embedding.get_config()
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "input_vocab_size": embedding["vocab_size"],
            "maximum_position_encoding": embedding["max_position"],
            "rate": self.rate,
            "jit": self.jit,
            "architecture": self.architecture and self.architecture.to_dict(),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))
