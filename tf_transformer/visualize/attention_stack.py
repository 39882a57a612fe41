"""Attention of one kind in all layers of a model, for one text.

Axes: N heads, T queries, S keys, H head width.
"""

from typing import NamedTuple

import numpy as np

from tf_transformer.functional.attention.recording import RecordedAttention


class AttentionStack(NamedTuple):
    """The labels and the arrays of one kind of attention.

    Args:
        kind: "encoder", "decoder" or "cross", which is from the decoder to the encoder.
        queries: T strings, the tokens that attend.
        keys: S strings, the tokens attended to.
        layers: list of `RecordedAttention`, one for each layer: float32 arrays (N, T, H), (N, S, H)
            and (N, T, S). N and H may differ between layers.

    Example:
        >>> q, k, w = np.ones((2, 1, 4)), np.ones((2, 1, 4)), np.ones((2, 1, 1))
        >>> stack = AttentionStack("encoder", ["hello"], ["hello"], [RecordedAttention(q, k, w)])
        >>> len(stack.layers)
        1
    """

    kind: str
    queries: list
    keys: list
    layers: list

    @classmethod
    def of(cls, kind, queries, keys, calls):
        """Make a stack of the calls that `recorded_attention` kept, each of one text.

        Args:
            kind, queries, keys: see the class.
            calls: list of `RecordedAttention` of tensors with B = 1.

        Returns:
            `AttentionStack`, with the keys of groups repeated for each of their heads.

        Example:
            >>> q, k, w = tf.ones((1, 2, 1, 4)), tf.ones((1, 1, 1, 4)), tf.ones((1, 2, 1, 1))
            >>> stack = AttentionStack.of("encoder", "a", "a", [RecordedAttention(q, k, w)])
            >>> stack.layers[0].keys.shape
            (2, 1, 4)
        """

        def arrays(call):
            queries, keys, weights = (np.asarray(part[0], np.float32) for part in call)
            keys = np.repeat(keys, len(queries) // len(keys), axis=0)  # (N, S, H)
            return RecordedAttention(queries, keys, weights)

        return cls(kind, list(queries), list(keys), [arrays(call) for call in calls])
