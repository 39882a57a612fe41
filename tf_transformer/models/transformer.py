"""The encoder-decoder Transformer, and the base of the models that decode with a cache.

Axes: B batch, K rows per sentence (beams), S source length, T target length, L maximum length, D
model width, V target vocabulary.
"""

from numbers import Integral

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.attention.masks import padding_mask
from tf_transformer.functional.tensors import as_ids, asserted
from tf_transformer.layers.architecture import HasArchitecture
from tf_transformer.layers.base_layer import TakesIds
from tf_transformer.layers.decoder import Decoder
from tf_transformer.layers.encoder import Encoder
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.models.base_model import BaseModel, check_pad_id


def checked_max_length(max_length, most, name):
    """Check the number of steps against the positions of a model."""
    expected = f"at most {most} ({name}), the decoder's number of positions"
    if tf.is_tensor(max_length):
        return asserted(max_length, max_length <= most, "max_length", expected, "more")
    check(max_length <= most, "max_length", expected, max_length)
    return max_length


def first_state(caches, batch_size, beam_size, max_length):
    """The state of a `DecodingModel` before the first step."""
    check(caches, "num_layers", "at least 1 for decoding with a cache", 0)
    return {
        "position": tf.constant(0),
        "caches": caches,
        # Which row wrote the token that each row has read at each position; -1: none yet.
        "lineage": tf.fill((batch_size, beam_size, max_length), -1),
        "source": {},  # further inputs of `decoder.step`
    }


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecodingModel(TakesIds, HasArchitecture, BaseModel):
    """Base class of the models that decode with a cache: `step`, `reorder` and `resize`."""

    # The K rows of a sentence share one cache. A row that forks from another copies nothing: its
    # lineage records which row wrote each of its tokens, and a mask shows it only those slots. All
    # rows see the first slots, which hold a prompt that was read in one pass.
    #
    # A subclass has `decoder`, an `Encoder` or `Decoder`; `final_layer`, None with a shared table;
    # and `start`, which returns `first_state` and whatever else it needs. Its config has the dict
    # `_arguments` and `architecture`, None or an `Architecture`. It is a separate attribute: Keras
    # tracks `_arguments`, and a config holding a tracked object cannot be copied.

    @property
    def ignore_class(self):
        """The label that does not count: the padding's, or -100 without padding."""
        if self.pad_id == 0:
            return "auto"
        return -100 if self.pad_id is None else self.pad_id

    def _new_final_layer(self, units, use_bias):
        options = {"use_bias": use_bias, "name": "final_layer", "dtype": self.dtype_policy}
        return FlatDense(units, **options)

    def logits(self, x):
        """Project the stack's output (..., D) to the vocabulary, (..., V)."""
        if self.final_layer is None:
            return self.decoder.embedding.logits(x)
        return self.final_layer(x)

    def step(self, tokens, state):
        """Read one token per row, (B * K,), and predict the next: `(logits, state)`, (B * K, V)."""
        position, lineage = state["position"], state["lineage"]
        batch, beams, length = tf.unstack(tf.shape(lineage))
        rows, shared = tf.range(beams), self._shared(state)
        here = tf.equal(shared + tf.range(length), position)  # (L,)
        lineage = tf.where(here, tf.expand_dims(rows, 1), lineage)  # (B, K, L)
        mask = tf.equal(tf.expand_dims(lineage, -1), rows)  # (B, K, L, K)
        mask = tf.reshape(mask, (batch, 1, beams, length * beams))
        if tf.is_tensor(shared):
            mask = tf.concat([tf.fill((batch, 1, beams, shared), True), mask], -1)  # (B, 1, K, C)
        x, caches = self.decoder.step(
            tf.reshape(tokens, (batch, beams)),
            caches=state["caches"],
            position=position,
            mask=mask,
            **state["source"],
        )
        logits = self.logits(tf.reshape(x, (batch * beams, x.shape[-1])))
        return logits, {**state, "position": position + 1, "caches": caches, "lineage": lineage}

    def reorder(self, state, rows):
        """Let row r continue from row `rows[r]`, int32 (B * K,), for `beam_search`; a new state."""
        # The caches are unchanged: only the record of which row wrote which token is updated.
        lineage = state["lineage"]
        shape = tf.shape(lineage)
        flat = tf.reshape(lineage, (shape[0] * shape[1], shape[2]))
        return {**state, "lineage": tf.reshape(tf.gather(flat, rows), shape)}

    def resize(self, state, kept, room):
        """The state of the sentences `kept`, int32 (B',), with caches for `room` tokens or more."""
        state = tf.nest.map_structure(
            lambda x: x if x.shape.rank == 0 else tf.gather(x, kept), state
        )
        _, beams, length = tf.unstack(tf.shape(state["lineage"]))
        more = tf.maximum(room - length - self._shared(state), 0)
        lineage = tf.pad(state["lineage"], [[0, 0], [0, 0], [0, more]], constant_values=-1)
        slots = [[0, 0], [0, 0], [0, beams * more], [0, 0]]
        caches = tf.nest.map_structure(lambda cache: tf.pad(cache, slots), state["caches"])
        return {**state, "lineage": lineage, "caches": caches}

    def _shared(self, state):
        """How many first slots of the caches all rows see; by shapes, which XLA knows."""
        if "shared" not in state["source"]:
            return 0
        _, beams, length = tf.unstack(tf.shape(state["lineage"]))
        return tf.shape(tf.nest.flatten(state["caches"])[0])[2] - length * beams

    def get_config(self):
        return {**super().get_config(), **self._arguments}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Transformer(DecodingModel):
    """Encoder-decoder that maps source and target ids to logits of the next target token.

    "Attention Is All You Need", figure 1. The masks are created internally from the padding.

    Args:
        num_layers: int, number of encoder layers and of decoder layers; or a pair of both numbers.
        d_model, num_heads, dff: see `EncoderLayer`.
        input_vocab_size, target_vocab_size: int, sizes of the two vocabularies.
        pe_input, pe_target: int, maximum source and target lengths in tokens.
        rate: float, dropout rate.
        share_embeddings: True uses one table as source embedding, target embedding and output
            projection (paper section 3.4), "inputs" for the two embeddings, as in T5 1.1; both
            require a joint vocabulary.
        architecture: None for the paper's, with `Positional_Encoding(pe_input)` and
            `Positional_Encoding(pe_target)`; or an `Architecture`. Texts may then be as long as its
            positions allow, and `pe_target` only limits decoding.
        layer_sizes: None, or a dict with the `layer_sizes` of `Encoder` and `Decoder`, "encoder"
            and "decoder", as after `compression.pruned`.
        output_bias: bool, whether the output projection has a bias; None if no table is shared.
        pad_id: int, the id of padding.
        starts_with_padding: bool, whether `pad_id` is also the start token, as in Marian and T5;
            the first token of a target is then never blocked.

    Call arguments:
        inputs: `(inp, tar)`, integer tensors (B, S) and (B, T); `tar` begins with the start token
            (shifted right).
        training: bool or None; dropout is only applied if true.
        return_attention_weights: True returns `(logits, attention_weights)`.

    Returns:
        float tensor (B, T, V), logits; with weights, also the dict that `Decoder` describes.

    Raises:
        ValueError: If `share_embeddings` is used with two vocabulary sizes, a sequence is longer
            than the positions of the architecture, or `d_model` is not divisible by `num_heads`.

    Differs from the notes: attention weights are only returned on request, which saves memory.

    Example:
        >>> model = Transformer(2, 8, 2, 32, 11, 13, pe_input=16, pe_target=16)
        >>> model((tf.constant([[5, 6, 2]]), tf.constant([[1, 7]])), False).shape.as_list()
        [1, 2, 13]
    """

    input_signature = tuple(tf.TensorSpec((None, None), "int32", name) for name in ("inp", "tar"))

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        input_vocab_size,
        target_vocab_size,
        pe_input,
        pe_target,
        rate=0.1,
        *,
        share_embeddings=False,
        architecture=None,
        layer_sizes=None,
        output_bias=None,
        pad_id=0,
        starts_with_padding=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        fits = share_embeddings in (True, False, "inputs")
        check(fits, "share_embeddings", 'True, False or "inputs"', f"{share_embeddings!r}")
        if share_embeddings and input_vocab_size != target_vocab_size:
            got = f"input_vocab_size={input_vocab_size} and target_vocab_size={target_vocab_size}"
            raise ArgumentError("share_embeddings", "one joint vocabulary", got)
        numbers = (num_layers,) * 2 if isinstance(num_layers, Integral) else tuple(num_layers)
        expected = "an int, or (encoder layers, decoder layers)"
        check(len(numbers) == 2, "num_layers", expected, f"{num_layers!r}")
        own_sizes = dict.fromkeys(("encoder", "decoder")) if layer_sizes is None else layer_sizes
        fits = set(own_sizes) == {"encoder", "decoder"}
        check(fits, "layer_sizes", 'a dict with "encoder" and "decoder"', f"{layer_sizes!r}")
        self._arguments = {
            "num_layers": num_layers if isinstance(num_layers, Integral) else numbers,
            "d_model": d_model,
            "num_heads": num_heads,
            "dff": dff,
            "input_vocab_size": input_vocab_size,
            "target_vocab_size": target_vocab_size,
            "pe_input": pe_input,
            "pe_target": pe_target,
            "rate": rate,
            "share_embeddings": share_embeddings,
            "output_bias": not share_embeddings if output_bias is None else output_bias,
            "pad_id": check_pad_id(pad_id, min(input_vocab_size, target_vocab_size)),
            "starts_with_padding": starts_with_padding,
        }
        self.architecture, self.pad_id = architecture, pad_id
        options = {"rate": rate, "architecture": architecture, "pad_id": pad_id}
        options["dtype"] = self.dtype_policy
        sizes = (numbers[0], d_model, num_heads, dff, input_vocab_size, pe_input)
        self.encoder = Encoder(*sizes, layer_sizes=own_sizes["encoder"], name="encoder", **options)
        options["embedding"] = self.encoder.embedding.embedding if share_embeddings else None
        sizes = (numbers[1], d_model, num_heads, dff, target_vocab_size, pe_target)
        self.decoder = Decoder(*sizes, layer_sizes=own_sizes["decoder"], name="decoder", **options)
        self.encoder.embedding.ids_name, self.decoder.embedding.ids_name = "inp", "tar"
        self.final_layer, self.output_bias = None, None
        if share_embeddings is not True:
            has_bias = self._arguments["output_bias"]
            self.final_layer = self._new_final_layer(target_vocab_size, has_bias)

    def build(self, input_shape=None):
        shapes = input_shape or ((None, None), (None, None))
        if len(shapes) != 2 or not all(isinstance(shape, tuple | list) for shape in shapes):
            expected = "the shapes of (inp, tar), such as ((None, None), (None, None))"
            raise ArgumentError("input_shape", expected, input_shape)
        source_shape, target_shape = shapes
        d_model = self._arguments["d_model"]
        self.encoder.build(source_shape)
        self.decoder.build(target_shape, (*source_shape, d_model))
        if self.final_layer is not None:
            self.final_layer.build((*target_shape, d_model))
        elif self._arguments["output_bias"]:
            size = (self._arguments["target_vocab_size"],)
            self.output_bias = self.add_weight(size, initializer="zeros", name="output_bias")

    def call(self, inputs, training=None, return_attention_weights=False):
        inp, tar = self.as_inputs(inputs)
        source_padding, target_padding = (padding_mask(ids, self.pad_id) for ids in (inp, tar))
        if self._arguments["starts_with_padding"]:
            first = tf.zeros_like(target_padding[..., :1])
            target_padding = tf.concat([first, target_padding[..., 1:]], -1)
        enc_output = self.encoder(inp, training, source_padding)
        # `create_masks` without its (B, 1, T, T) mask: the attention core blocks the future.
        masks = (target_padding, source_padding)
        dec_output, attention_weights = self.decoder(
            tar, enc_output, training, *masks, return_attention_weights, causal=True
        )
        logits = self.logits(dec_output)
        return (logits, attention_weights) if return_attention_weights else logits

    def as_inputs(self, inputs):
        """See `TakesIds`."""
        if not isinstance(inputs, tuple | list) or len(inputs) != 2:
            got = f"{len(inputs)} of them" if isinstance(inputs, tuple | list) else inputs
            raise ArgumentError("inputs", "(inp, tar), two tensors of ids", got)
        pairs = zip(inputs, ("inp", "tar"), strict=True)
        return tuple(as_ids(ids, name, self.pad_id) for ids, name in pairs)

    def compute_mask(self, inputs, previous_mask=None):
        """Return the Keras mask of the target ids, if they have one."""
        return super().compute_mask(inputs[1])

    def logits(self, dec_output):
        """Project the decoder's output (..., D) to the vocabulary, (..., V)."""
        logits = super().logits(dec_output)
        if self.output_bias is None:
            return logits
        return logits + tf.cast(self.output_bias, logits.dtype)

    def start(self, inp, max_length, beam_size=1):
        """Encode the sources and create the initial state for `step`, a dict of tensors.

        Args:
            inp: integer tensor (B, S), source ids.
            max_length: int or scalar int32 tensor L, the maximum number of steps, at most
                `pe_target`; with 0, `resize` sets it later.
            beam_size: int K, the number of rows per sentence; they are adjacent.
        """
        max_length = checked_max_length(max_length, self._arguments["pe_target"], "pe_target")
        inp = as_ids(inp, "inp", self.pad_id)
        padding = padding_mask(inp, self.pad_id)
        mask = getattr(inp, "_keras_mask", None)
        if mask is not None:  # `call` blocks what it hides, too
            hidden = tf.cast(tf.logical_not(mask), padding.dtype)[:, tf.newaxis, tf.newaxis]
            padding = tf.maximum(padding, hidden)
        memory = self.encoder(inp, False, padding)
        caches, memories = self.decoder.start(memory, max_length * beam_size)
        source = {"memories": memories, "padding_mask": padding}
        return {**first_state(caches, tf.shape(inp)[0], beam_size, max_length), "source": source}

    def get_config(self):
        config = super().get_config()
        if self.encoder.layer_sizes is not None:
            stacks = {"encoder": self.encoder, "decoder": self.decoder}
            config["layer_sizes"] = {name: stack.layer_sizes for name, stack in stacks.items()}
        return config
