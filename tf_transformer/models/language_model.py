"""The decoder-only Transformer.

Axes: B batch, K rows per text (beams), T length, P prompt length, L maximum length, D model width,
V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import padding_mask
from tf_transformer.functional.tensors import are_tokens, as_ids, asserted, in_vocabulary
from tf_transformer.layers.encoder import Encoder
from tf_transformer.models.base_model import check_pad_id
from tf_transformer.models.transformer import DecodingModel, checked_max_length, first_state


@keras.saving.register_keras_serializable(package="tf_transformer")
class LanguageModel(DecodingModel):
    """Decoder-only model that maps token ids to logits of the next token.

    The decoder of "Attention Is All You Need" without attention to an encoder: Liu et al. 2018,
    section 4.2.3; Radford et al. 2018, "Improving Language Understanding by Generative
    Pre-Training", section 3.1. The future is blocked, and so is padding.

    Args:
        num_layers: int, number of layers.
        d_model, num_heads, dff, rate: see `EncoderLayer`.
        vocab_size: int, V.
        max_position: int, the longest text in tokens.
        architecture: None for the paper's, `Architecture(Positional_Encoding(max_position))`; or
            another one. Texts may then be as long as its positions allow, and `max_position` only
            limits decoding.
        share_embeddings: bool. True uses the embedding table as output projection; False has
            another matrix, without a bias, as in Llama.
        pad_id: int, the id of padding; None if the model has none, as GPT-2.

    Call arguments:
        ids: integer tensor (B, T), usually beginning with the start token.
        training: bool or None; dropout is only applied if true.

    Returns:
        float tensor (B, T, V); the logits at t predict the token at t + 1.

    Raises:
        ValueError: If a text is longer than the positions of the architecture, or `d_model` is not
            divisible by `num_heads`.

    Differs from Radford et al., who have learned positions and GELU and do not scale embeddings,
    see `architectures.get("gpt2")`.

    Example:
        >>> model = LanguageModel(2, 8, 2, 32, vocab_size=13, max_position=16)
        >>> model(tf.constant([[1, 7, 5]])).shape.as_list()
        [1, 3, 13]
    """

    input_signature = tf.TensorSpec((None, None), "int32", "ids")

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        vocab_size,
        max_position,
        rate=0.1,
        *,
        architecture=None,
        share_embeddings=True,
        pad_id=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._arguments = {
            "num_layers": num_layers,
            "d_model": d_model,
            "num_heads": num_heads,
            "dff": dff,
            "vocab_size": vocab_size,
            "max_position": max_position,
            "rate": rate,
            "share_embeddings": share_embeddings,
            "pad_id": pad_id if pad_id is None else check_pad_id(pad_id, vocab_size),
        }
        self.architecture, self.pad_id = architecture, pad_id
        sizes = (num_layers, d_model, num_heads, dff, vocab_size, max_position)
        options = {"architecture": architecture, "pad_id": pad_id, "dtype": self.dtype_policy}
        self.decoder = Encoder(*sizes, rate, name="decoder", **options)
        self.final_layer = None if share_embeddings else self._new_final_layer(vocab_size, False)

    def build(self, input_shape=None):
        self.decoder.build(input_shape or (None, None))
        if self.final_layer is not None:
            self.final_layer.build((None, None, self._arguments["d_model"]))

    def call(self, ids, training=None):
        ids = as_ids(ids, self.ids_name, self.pad_id)
        mask = padding_mask(ids, self.pad_id)
        return self.logits(self.decoder(ids, training, mask, causal=True))

    def start(self, prompt, max_length, beam_size=1):
        """Create the initial state for `step`, a dict of tensors.

        A prompt is read one token per step, or before by `prefill`. Within it, `step` allows only
        its next token: the decoded text begins with the prompt, which counts for the length but not
        for the score. A prompt that contains the end token ends there.

        Args:
            prompt: integer tensor (B, P), how each text begins after its start token, with padding
                at the end of shorter ones; or a ragged tensor. P may be 0.
            max_length: int or scalar int32 tensor L <= max_position, the maximum number of steps,
                including the prompt; with 0, `resize` sets it later.
            beam_size: int K, the number of rows per text; they are adjacent.

        Raises:
            ValueError: If `max_length` or P is larger than `max_position`, or a prompt has padding
                before a token; in a graph, tf.errors.InvalidArgumentError.
        """
        longest = self._arguments["max_position"]
        max_length = checked_max_length(max_length, longest, "max_position")
        prompt = self._read_prompt(prompt)
        if prompt.shape[1] is not None and prompt.shape[1] > longest:
            expected = f"at most {longest} tokens (max_position), the model's number of positions"
            raise ArgumentError("prompt", expected, prompt.shape[1], "Leave out its beginning.")
        batch_size = tf.shape(prompt)[0]
        caches = self.decoder.start(batch_size, max_length * beam_size)
        return {**first_state(caches, batch_size, beam_size, max_length), "prompt": prompt}

    def _read_prompt(self, prompt):
        """The ids of a prompt, int32 (B, P), -1 after the end."""
        size = self._arguments["vocab_size"]
        if isinstance(prompt, tf.RaggedTensor):
            ids = as_ids(prompt, "prompt", 0)
            is_token = tf.sequence_mask(prompt.row_lengths(), tf.shape(ids)[1])
        else:
            ids = as_ids(prompt, "prompt")
            is_token = are_tokens(ids, self.pad_id)
        ids = tf.cast(in_vocabulary(ids, size, "prompt"), tf.int32)
        gap = ~is_token[:, :-1] & is_token[:, 1:]  # (B, P - 1), where `step` would choose tokens
        error = ("prompt", "padding only at the end of a text", "padding before a token")
        is_token = asserted(is_token, ~tf.reduce_any(gap), *error, "Pad on the right.")
        return tf.where(is_token, ids, -1)

    def prefill(self, state, start_ids):
        """Read the start tokens (B,) and the prompts, up to the shortest one's end, in one pass.

        Returns:
            `(state, prefix)`: the state after the pass, and int32 (B, count), the prompts' first
            tokens, for the option `prefix` of `greedy_decode`. The state has not read the last.
        """
        prompt, lineage = state["prompt"], state["lineage"]
        counts = tf.math.count_nonzero(prompt >= 0, axis=1, dtype=tf.int32)
        batch_size, longest = tf.unstack(tf.shape(prompt))
        longest = tf.where(batch_size > 0, longest, 0)
        count = tf.reduce_min(tf.concat([counts, [longest]], 0))
        ids = tf.concat([tf.expand_dims(start_ids, 1), prompt], 1)[:, :count]
        beams = tf.shape(lineage)[1]

        def filled(new, cache):  # a slot for each token, in place of one for each beam
            return tf.concat([new, cache[:, :, count * beams :]], 2)

        caches = tf.nest.map_structure(filled, self.decoder.read(ids), state["caches"])
        state = {**state, "position": count, "lineage": lineage[:, :, count:], "caches": caches}
        state["source"] = {"shared": count}
        return state, prompt[:, :count]

    def step(self, tokens, state):
        """See `DecodingModel`; within the prompt, logits are 0.0 for its next token, else -inf."""
        position, prompt = state["position"], state["prompt"]
        logits, after = super().step(tokens, state)
        # Past its end, the prompt has -1.
        here = tf.equal(tf.range(tf.shape(prompt)[1]), position)
        following = tf.where(here, prompt + 1, 0)
        following = tf.reduce_sum(following, axis=1, keepdims=True) - 1  # (B, 1)
        following = tf.repeat(following, tf.shape(state["lineage"])[1], axis=0)  # (B * K, 1)

        def forced():
            only = tf.where(tf.equal(tf.range(logits.shape[-1]), following), 0.0, -float("inf"))
            return tf.where(following >= 0, tf.cast(only, logits.dtype), logits)

        return tf.cond(tf.reduce_any(following >= 0), forced, lambda: logits), after
