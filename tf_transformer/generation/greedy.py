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
    """Take the likeliest token, feed it back, until every sentence has ended.

    One `tf.while_loop` over fixed-size buffers; with `resize` there is another one around it, see
    `decode_loop`. The padding id 0 is never chosen: it says that a sentence is over.

    Args:
        step: function `(tokens, state) -> (logits, state)`: tokens (B,) int32, logits (B, V).
        state: whatever `step` takes first, any nest of tensors whose shapes stay.
        batch_size: int or scalar int32 tensor, B.
        start_id: int, the token fed first.
        end_id: int above 0, the token that ends a sentence; one that the vocabulary has not: none
            ends before its limit.
        max_length: int or scalar int32 tensor, L >= 1.
        limits: None, or int32 tensor (B,), at least 1: each sentence's own most tokens, no more
            than L in any case.
        min_length: int, tokens of a sentence before it may end.
        no_repeat_ngram: int n: no n-gram comes twice in a sentence; 0 lets it.
        resize, jit_compile: see `decode_loop`: lets finished sentences leave the batch. For a state
            of rows, `resize` is `lambda state, sentences, room: gather_rows(state, sentences)`.

    Returns:
        int32 tensor (B, L), token ids without the end token, 0 after the end.

    Raises:
        ValueError: a number out of range; tf.errors.InvalidArgumentError, if it is a tensor.
        tf.errors.InvalidArgumentError: a row of logits with NaN, infinity or nothing possible.
            Inside XLA, which knows no errors, decoding stops there.

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
