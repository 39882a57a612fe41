"""The decoder-only Transformer.

Axes: B batch, K rows per text (beams), T length, P prompt length, L maximum length, D model width,
V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import create_padding_mask
from tf_transformer.functional.ids import as_ids, asserted, in_vocabulary
from tf_transformer.layers.encoder import Encoder
from tf_transformer.models.base_model import DecodingModel, checked_max_length, first_state


@keras.saving.register_keras_serializable(package="tf_transformer")
class LanguageModel(DecodingModel):
    """Decoder-only model that maps token ids to logits of the next token.

    The decoder of "Attention Is All You Need" without attention to an encoder: Liu et al. 2018,
    "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3; Radford et al. 2018,
    "Improving Language Understanding by Generative Pre-Training", section 3.1. The output
    projection is the embedding table. The future is blocked, and so is padding, id 0.

    Args:
        num_layers: int, number of layers.
        d_model, num_heads, dff, rate: see `EncoderLayer`.
        vocab_size: int, V.
        max_position: int, the longest text in tokens.
        architecture: None for the paper's, `Architecture(Positional_Encoding(max_position))`; or
            another one. Texts may then be as long as its positions allow, and `max_position` only
            limits decoding.

    Call arguments:
        ids: integer tensor (B, T), 0 = padding, usually beginning with the start token.
        training: bool or None; dropout is only applied if true.

    Returns:
        float tensor (B, T, V); the logits at t predict the token at t + 1.

    Raises:
        ValueError: If a text is longer than the positions of the architecture, or `d_model` is not
            divisible by `num_heads`.

    Differs from the papers, which use GPT's layers with learned positions and GELU:
    `Architecture(LearnedPositions(max_position), feed_forward=FeedForward("gelu_new"))`. The
    default layers are those of "Attention Is All You Need", with embeddings scaled by sqrt(D).

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
        }
        self.architecture = architecture
        sizes = (num_layers, d_model, num_heads, dff, vocab_size, max_position)
        options = {"architecture": architecture, "name": "decoder", "dtype": self.dtype_policy}
        self.decoder = Encoder(*sizes, rate, **options)

    def build(self, input_shape=None):
        self.decoder.build(input_shape or (None, None))

    def call(self, ids, training=None):
        ids = as_ids(ids)
        return self.logits(self.decoder(ids, training, create_padding_mask(ids), causal=True))

    def logits(self, x):
        """Project the stack's output (..., D) to the vocabulary, (..., V)."""
        return self.decoder.embedding.logits(x)

    def start(self, prompt, max_length, beam_size=1):
        """Create the initial state for `step`, a dict of tensors.

        A prompt is read like the text after it, one token per step: within the prompt, `step`
        allows only its next token, with probability 1. So every decoding strategy follows the
        prompt: the decoded text begins with it, and its tokens count for the length but not for the
        score. A prompt that contains the end token ends there.

        Args:
            prompt: integer tensor (B, P), how each text begins after its start token; 0 = padding
                at the end of shorter ones. P may be 0.
            max_length: int or scalar int32 tensor L <= max_position, the maximum number of steps,
                including the prompt; with 0, `resize` sets it later.
            beam_size: int K, the number of rows per text; they are adjacent.

        Raises:
            ValueError: If `max_length` or P is larger than `max_position`, or a prompt has padding
                before a token; in a graph, tf.errors.InvalidArgumentError.
        """
        longest = self._arguments["max_position"]
        max_length = checked_max_length(max_length, longest, "max_position")
        prompt = in_vocabulary(as_ids(prompt, "prompt"), self._arguments["vocab_size"], "prompt")
        prompt = tf.cast(prompt, tf.int32)
        if prompt.shape[1] is not None and prompt.shape[1] > longest:
            expected = f"at most {longest} tokens (max_position), the model's number of positions"
            raise ArgumentError("prompt", expected, prompt.shape[1], "Leave out its beginning.")
        prompt = _padded_at_the_end(prompt)
        batch_size = tf.shape(prompt)[0]
        caches = self.decoder.start(batch_size, max_length * beam_size)
        return {**first_state(caches, batch_size, beam_size, max_length), "prompt": prompt}

    def step(self, tokens, state):
        """See `DecodingModel`; within the prompt, logits are 0.0 for its next token, else -inf."""
        logits, after = super().step(tokens, state)
        prompt = state["prompt"]
        # Past its end, the prompt has padding.
        here = tf.equal(tf.range(tf.shape(prompt)[1]), state["position"])
        following = tf.reduce_sum(tf.where(here, prompt, 0), axis=1, keepdims=True)  # (B, 1)
        following = tf.repeat(following, tf.shape(state["lineage"])[1], axis=0)  # (B * K, 1)
        only = tf.where(tf.equal(tf.range(logits.shape[-1]), following), 0.0, -float("inf"))
        return tf.where(following > 0, tf.cast(only, logits.dtype), logits), after


def _padded_at_the_end(prompt):
    """Refuse padding before a token, where `step` would choose its own tokens."""
    gap = (prompt[:, :-1] == 0) & (prompt[:, 1:] != 0)  # (B, P - 1)
    expected = "padding, id 0, only at the end of a text"
    error = ArgumentError("prompt", expected, "padding before a token", "Pad on the right.")
    return asserted(prompt, ~tf.reduce_any(gap), error)
