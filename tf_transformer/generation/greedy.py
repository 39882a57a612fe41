"""Greedy decoding.

Axes: B batch, L most tokens to decode, V vocabulary.
"""

from tf_transformer.generation.decoding_rules import DecodingRules
from tf_transformer.generation.token_loop import decode_tokens


def greedy_decode(
    step,
    state,
    batch_size,
    *,
    start_id,
    end_id,
    max_length,
    limits=None,
    min_length=0,
    no_repeat_ngram=0,
    resize=None,
    jit_compile=False,
):
    """Choose the likeliest token at each step, until every sentence has ended.

    One `tf.while_loop` over fixed-size buffers; with `resize`, an outer loop around it, see
    `decode_loop`. The padding id 0 is never chosen: it marks the end of a sentence.

    Args:
        step: function `(tokens, state) -> (logits, state)`: tokens (B,) int32, logits (B, V).
        state: the first state for `step`, any nest of tensors whose shapes do not change; or a
            function without arguments that makes it, which `jit_compile` compiles too.
        batch_size: int or scalar int32 tensor, B.
        start_id: int, the token fed first.
        end_id: int above 0, the token that ends a sentence; with an id outside the vocabulary,
            every sentence runs to its limit.
        max_length: int or scalar int32 tensor, L >= 1.
        limits: None, or int32 tensor (B,), at least 1: the maximum length of each sentence, capped
            at L.
        min_length: int, minimum number of tokens before the end token.
        no_repeat_ngram: int n: no n-gram occurs twice in a sentence, except where a single token is
            possible, as in a prompt; 0 turns the rule off.
        resize, jit_compile: see `decode_loop`: `resize` removes finished sentences from the batch.
            If the state has rows, pass
            `lambda state, sentences, room: gather_rows(state, sentences)`.

    Returns:
        int32 tensor (B, L), token ids without the end token, 0 after the end.

    Raises:
        ValueError: If a number is out of range; tf.errors.InvalidArgumentError for a tensor.
        tf.errors.InvalidArgumentError: If a row of logits has NaN, infinity or no possible token.
            XLA cannot raise errors: decoding stops there.

    Example:
        >>> def count_up(tokens, state):
        ...     return tf.one_hot(tokens + 1, 6), state
        >>> greedy_decode(count_up, (), 1, start_id=1, end_id=4, max_length=5).numpy().tolist()
        [[2, 3, 0, 0, 0]]
    """
    return decode_tokens(
        lambda logits, ids, position: ids[:, 0],
        1,
        step,
        state,
        batch_size,
        DecodingRules(start_id, end_id, max_length, limits, min_length, no_repeat_ngram),
        resize,
        jit_compile,
    )
