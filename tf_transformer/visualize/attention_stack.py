"""Attention of one kind in all layers of a model, for one text.

Axes: N heads, T queries, S keys, H head width.
"""

from typing import NamedTuple

import numpy as np

from tf_transformer.functional.attention.scaled_dot_product import RecordedAttention


class AttentionStack(NamedTuple):
    """The labels and the arrays of one kind of attention."""

    kind: str
    queries: list
    keys: list
    layers: list

    @classmethod
    def of(cls, kind, queries, keys, calls):
        """Make a stack of the calls that `recorded_attention` kept, each of one text."""

        def arrays(call):
            queries, keys, weights = (np.asarray(part[0], np.float32) for part in call)
            keys = np.repeat(keys, len(queries) // len(keys), axis=0)  # (N, S, H)
            return RecordedAttention(queries, keys, weights)

        return cls(kind, list(queries), list(keys), [arrays(call) for call in calls])
