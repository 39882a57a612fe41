"""The encoder: embedding, positions, N layers, whose inner values gradients may compute again.

Axes: B batch, T length, S source length, K rows per sentence, C cache slots, D model width, G heads
of keys and values, H head width.
"""

import contextvars
import dataclasses
import functools

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.attention.masks import check_keras_mask
from tf_transformer.functional.tensors import are_tokens, as_ids, setting
from tf_transformer.layers.architecture import Architecture, HasArchitecture, check_layer_sizes
from tf_transformer.layers.base_layer import TakesIds, attributes
from tf_transformer.layers.embeddings import TokenEmbedding
from tf_transformer.layers.feed_forwards import check_width
from tf_transformer.layers.multi_head_attention import check_heads
from tf_transformer.layers.positions import Positional_Encoding
from tf_transformer.layers.residuals import Dropout


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(HasArchitecture, keras.layers.Layer):
    """Self-attention, then a feed-forward network, each followed by "add and norm".

    out = LayerNorm(x + Dropout(Sublayer(x))) twice (post-norm), "Attention Is All You Need",
    section 3.1. With `causal` and `step` it is the layer of a decoder-only model.

    Args:
        d_model: int, model width D; a ValueError is raised if `x` has another.
        num_heads: int, number of heads; must divide `d_model` unless the architecture has a
            `key_dim`.
        dff: int, inner width of the feed-forward network.
        rate: float, dropout rate on the output of each sublayer.
        architecture: None for the paper's, `Architecture()`; or another one.
        positions: None for a new part like `architecture.positions`, or a part that the layers of a
            stack share.

    Call arguments:
        x: float tensor (B, T, D).
        training: bool or None; dropout is only applied if true.
        mask: None, float (1.0 = blocked) or bool (True = may attend), see `MultiHeadAttention`.
        tokens: None, or bool tensor (B, T), False for padding, for a norm over the batch.
        causal: bool, True also blocks the future.
        return_attention_weights: True returns `(out, attention_weights)`.
        x_mask: None, or bool tensor (B, T), False for padding, which is blocked as well; also the
            default of `tokens`. By default the Keras mask of `x`, which the output inherits.

    Returns:
        (B, T, D); with weights, also (B, N, T, T).

    Example:
        >>> EncoderLayer(8, 2, 32)(tf.ones((1, 3, 8)), False, None).shape.as_list()
        [1, 3, 8]
    """

    def __init__(
        self, d_model, num_heads, dff, rate=0.1, *, architecture=None, positions=None, **kwargs
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.d_model, self.num_heads, self.dff, self.rate = d_model, num_heads, dff, rate
        self.architecture = parts = architecture or Architecture()
        self.residual = parts.residual
        self.mha = parts.self_attention(d_model, num_heads, positions, name="mha", dtype=dtype)
        self.ffn_before, self.ffn = parts.feed_forward.networks(d_model, dff, dtype)
        self.layernorm1 = parts.new_norm("layernorm1", dtype)
        self.layernorm2 = parts.new_norm("layernorm2", dtype)
        self.dropout1 = Dropout(rate, name="dropout1", dtype=dtype)
        self.dropout2 = Dropout(rate, name="dropout2", dtype=dtype)
        if self.ffn_before is not None:
            self.layernorm0 = parts.new_norm("layernorm0", dtype)
            self.dropout0 = Dropout(rate, name="dropout0", dtype=dtype)

    def build(self, x_shape):
        check_width(x_shape, self.d_model)
        self.mha.build(x_shape, x_shape, x_shape)
        self._build_rest(x_shape)

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

    def step(self, x, cache, slot, mask=None, token_positions=None):
        """New positions (B, T, D) from cached ones, as `call`; see `MultiHeadAttention.step`."""
        return self._sublayers(x, lambda y: self.mha.step(y, cache, slot, mask, token_positions))

    def read(self, x):
        """`call` with `causal=True` on a text (B, T, D), and its keys and values (B, G, T, H)."""

        def attend(y):
            cache = self.mha.keys_values(y, y)
            options = {"return_attention_weights": False, "causal": True}
            return self.mha.attend(y, *cache, **options)[0], cache

        return self._sublayers(x, attend)

    def _sublayers(self, x, attend, training=False, tokens=None):
        join = functools.partial(self.residual, training=training, tokens=tokens)
        if self.ffn_before is not None:
            x, _ = join(x, lambda y: (self.ffn_before(y), None), self.layernorm0, self.dropout0)
        # `extra` is what attention returns besides its output: the weights, in `step` the cache.
        x, extra = join(x, attend, self.layernorm1, self.dropout1)
        x, _ = join(x, lambda y: (self.ffn(y), None), self.layernorm2, self.dropout2)
        return x, extra

    def get_config(self):
        fields = attributes(self, "d_model", "num_heads", "dff", "rate")
        return {**super().get_config(), **fields}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Stack(TakesIds, HasArchitecture, keras.layers.Layer):
    """Base of `Encoder` and `Decoder`: embedded tokens, layers, and perhaps one more norm."""

    def __init__(self, sizes, rate, embedding, architecture, pad_id=0, **kwargs):
        super().__init__(**kwargs)
        self.num_layers, d_model, self.num_heads, self.dff, vocab_size, max_position = sizes
        self.d_model, self.rate, self.pad_id = d_model, rate, pad_id
        self.architecture = parts = architecture or Architecture(Positional_Encoding(max_position))
        options = {"name": "embedding", "dtype": self.dtype_policy}
        options |= {"embedding": embedding, "positions": parts.positions.copy(self.dtype_policy)}
        options |= {"embedding_size": parts.embedding_size, "scale": parts.scale_embeddings}
        if parts.embedding_norm:
            options["norm"] = parts.new_norm("norm", self.dtype_policy)
        self.embedding = TokenEmbedding(vocab_size, d_model, max_position, rate, **options)

    def _new_layers(self, make, layer_sizes, **sizes):
        """Create the layers `make(*sizes, **options)`, of `layer_sizes` or else all of `sizes`."""
        check(self.num_layers >= 0, "num_layers", "at least 0", self.num_layers)
        parts, shared = self.architecture, self.embedding.positions
        self.layer_sizes, each = None, [tuple(sizes.values())] * self.num_layers
        if layer_sizes is not None:
            if parts.num_groups is not None:
                expected = f"None with num_groups={parts.num_groups}, whose layers share weights"
                raise ArgumentError("layer_sizes", expected, layer_sizes)
            self.layer_sizes = each = check_layer_sizes(layer_sizes, self.num_layers, sizes)
            check_heads(self.d_model, self.num_heads, parts.key_dim, None, False)
            key_dim = parts.key_dim or self.d_model // self.num_heads
            parts = dataclasses.replace(parts, key_dim=key_dim)

        def layer(n):
            options = {"name": f"layer{n}", "dtype": self.dtype_policy}
            return make(*each[n], architecture=parts, positions=shared.for_layer(), **options)

        # With groups, as in ALBERT, adjacent layers are the same one.
        count = min(parts.num_groups or self.num_layers, self.num_layers)
        layers = [layer(n) for n in range(count)]
        return [layers[n * count // self.num_layers] for n in range(self.num_layers)]

    def _new_final_norm(self):
        if self.architecture.residual.final_norm:
            return self.architecture.new_norm("final_norm", self.dtype_policy)
        return None

    def _build(self, layers, x_shape, *other_shapes):
        self.embedding.build(x_shape)
        hidden_shape = (*x_shape, self.d_model)
        for layer in dict.fromkeys(layers):
            layer.build(hidden_shape, *other_shapes)
        if self.final_norm is not None:
            self.final_norm.build(hidden_shape)

    def _embed(self, x, training, x_mask):
        """The embedded ids (B, T, D), and which of them are tokens, bool (B, T)."""
        x = as_ids(x, self.ids_name, self.pad_id)
        tokens = are_tokens(x, self.pad_id)
        if x_mask is not None:
            check_keras_mask(x_mask, x.shape)
            tokens &= x_mask
        return self.embedding(x, training=training, tokens=tokens), tokens

    def _normalize(self, x, training=False, tokens=None):
        if self.final_norm is None:
            return x
        return self.final_norm(x, training=training, tokens=tokens)

    def get_config(self):
        names = ("num_layers", "d_model", "num_heads", "dff", "rate", "layer_sizes", "pad_id")
        longest = {"maximum_position_encoding": self.embedding.max_position}
        return {**super().get_config(), **attributes(self, *names), **longest}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Encoder(Stack):
    """A stack of encoder layers over embedded tokens.

    "Attention Is All You Need", section 3.1 and figure 1, left. With `causal`, `start` and `step`
    it is the stack of a decoder-only model.

    Args:
        num_layers: int, number of layers.
        d_model, num_heads, dff, rate: see `EncoderLayer`.
        input_vocab_size: int, size of the source vocabulary.
        maximum_position_encoding: int, the longest source sentence in tokens.
        embedding: None, or a `keras.layers.Embedding` to share.
        architecture: None for the one of the paper and the notes,
            `Architecture(Positional_Encoding(maximum_position_encoding))`; or another one.
        layer_sizes: None, or `(num_heads, dff)` for each layer, as after `compression.pruned`;
            `num_heads` then only sets the width of a head.
        pad_id: int, the id of padding, for a norm over the batch; None if there is none.

    Call arguments:
        x: integer tensor (B, S), token ids.
        training: bool or None; dropout is only applied if true.
        mask: see `MultiHeadAttention`; usually `create_padding_mask(x)`.
        causal: bool, True also blocks the future.
        return_attention_weights: True returns `(x, attention_weights)`.
        x_mask: None, or bool tensor (B, S), False for padding; see `EncoderLayer`.

    Returns:
        float tensor (B, S, D); with weights, also a dict with `encoder_layer{i}` (B, N, S, S) for
        i = 1..num_layers.

    Raises:
        ValueError: If a text has too many tokens for the positions; see `MultiHeadAttention`.

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
        embedding=None,
        architecture=None,
        layer_sizes=None,
        pad_id=0,
        **kwargs,
    ):
        sizes = (num_layers, d_model, num_heads, dff, input_vocab_size, maximum_position_encoding)
        super().__init__(sizes, rate, embedding, architecture, pad_id, **kwargs)

        def layer(heads, units, **options):
            return EncoderLayer(d_model, heads, units, rate, **options)

        self.enc_layers = self._new_layers(layer, layer_sizes, num_heads=num_heads, dff=dff)
        self.final_norm = self._new_final_norm()

    def build(self, x_shape):
        self._build(self.enc_layers, x_shape)

    def call(
        self,
        x,
        training=None,
        mask=None,
        *,
        causal=False,
        return_attention_weights=False,
        x_mask=None,
    ):
        x, tokens = self._embed(x, training, x_mask)
        attention_weights = {}
        options = {"training": training, "mask": mask, "causal": causal, "tokens": tokens}
        options |= {"x_mask": x_mask, "return_attention_weights": return_attention_weights}
        for i, layer in enumerate(self.enc_layers, start=1):
            x = run_layer(layer, x, **options)
            if return_attention_weights:
                x, attention_weights[f"encoder_layer{i}"] = x
        x = self._normalize(x, training, tokens)
        return (x, attention_weights) if return_attention_weights else x

    def start(self, batch_size, slots):
        """Create the caches of `step`: zeros (B, G, C, H) for keys and values of each layer.

        C is the number of tokens to read per sentence, summed over its rows.
        """
        return [layer.mha.empty_cache(batch_size, slots) for layer in self.enc_layers]

    def read(self, ids):
        """Return the caches after T times `step`, with slots for as many tokens: ids (B, T)."""
        x, caches = self.embedding(ids, training=False), []
        for layer in self.enc_layers:
            x, cache = layer.read(x)
            caches.append(cache)
        return caches

    def step(self, tokens, caches, position, mask=None, shared=0):
        """Read one token per row against the cache, as `call` with `causal=True`.

        Args:
            tokens: integer tensor (B, K), the tokens at `position` of the K rows of each sentence.
            caches: from `start`, then from the last `step`.
            position: scalar int32 tensor, 0 for the first token.
            mask: None if K = 1; or bool tensor (B, 1, K, C), True = may attend: the slots of a
                row's own history, including its new one. Position p has the K slots from
                `shared + (p - shared) * K` on.
            shared: int or scalar int32 tensor, how many first positions have one slot for all rows.

        Returns `(x, caches)`: (B, K, D), and the caches with the new keys and values.
        """
        slots = tf.shape(caches[0][0])[2]
        x, slot, token_positions = self.embedding.step(tokens, position, slots, shared)
        filled = []
        for layer, cache in zip(self.enc_layers, caches, strict=True):
            x, cache = layer.step(x, cache, slot, mask, token_positions)
            filled.append(cache)
        return self._normalize(x), filled

    def get_config(self):
        return {**super().get_config(), "input_vocab_size": self.embedding.embedding.input_dim}


_recomputes = contextvars.ContextVar("recompute_layers", default=False)


def recompute_layers(recompute=True):
    """Set whether training keeps only the inputs of each layer, in a `with` block.

    The gradients are the same, dropout included, for less memory and about a third more work: Chen
    et al. 2016, "Training Deep Nets with Sublinear Memory Cost". It applies to `Encoder` and
    `Decoder`. Functions traced inside the block keep the setting: call `compile` and `fit` there.

    Args:
        recompute: bool.

    Example:
        >>> from tf_transformer import LanguageModel
        >>> model = LanguageModel(2, 8, 2, 16, vocab_size=13, max_position=9)
        >>> ids = tf.constant([[1, 7, 5]])
        >>> with recompute_layers():
        ...     model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
        ...     _ = model.fit(ids, ids, verbose=0)
    """
    return setting(_recomputes, recompute)


def run_layer(layer, *inputs, training, **options):
    """`layer(*inputs, training=training, **options)`, perhaps computed again for its gradients."""
    # Gradients reach `inputs` and the layer's weights, but no tensor of the `options`.
    options["training"] = training
    if not (training and _recomputes.get()):
        return layer(*inputs, **options)
    count, weights, states = len(inputs), layer.trainable_variables, layer.non_trainable_variables
    # The values of `_value` are in the weights' own dtypes, whatever the policy of the caller.
    values = [tf.convert_to_tensor(variable._value) for variable in (*weights, *states)]
    before, after, structure = values[len(weights) :], [], None

    def run(tensors, states_before):
        nonlocal structure
        values = (*tensors[count:], *states_before)
        # A scope instead of the variables: the second time, seeds are those of the first, and
        # nothing is assigned. `tf.recompute_grad`, which Keras uses, draws other factors.
        with keras.StatelessScope(list(zip((*weights, *states), values, strict=True))) as scope:
            structure = layer(*tensors[:count], **options)
        outputs = [output for output in tf.nest.flatten(structure) if output is not None]
        return outputs, [scope.get_current_value(state) for state in states]

    @tf.custom_gradient
    def compute(*tensors):
        outputs, after[:] = run(tensors, before)

        def gradient(*upstream):
            with tf.GradientTape() as tape:
                again = [_after(tensor, upstream[0]) for tensor in tensors]
                tape.watch(again)
                outputs, _ = run(again, [_after(state, upstream[0]) for state in before])
            return tape.gradient(outputs, again, upstream, unconnected_gradients="zero")

        return outputs, gradient

    outputs = iter(compute(*inputs, *values[: len(weights)]))
    for state, old, new in zip(states, before, after, strict=True):
        if new is not old:
            state.assign(new)
    return tf.nest.map_structure(lambda x: x if x is None else next(outputs), structure)


def _after(tensor, other):
    """The same tensor, but depending on another one: no compiler merges equal computations."""
    first = tf.reduce_max(tf.reshape(other, (-1,))[:1])  # -inf if there is none
    # 0, which no compiler knows: NaN is not equal to itself. As in `tf.recompute_grad`.
    zero = tf.where(tf.equal(first, first), 0.0, float("nan"))
    return tensor + tf.cast(zero, tensor.dtype)
