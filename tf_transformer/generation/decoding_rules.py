"""What every decoding must know about the sentences it may produce.

Axes: B batch.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.generation.checks import check_range


@dataclasses.dataclass(frozen=True)
class DecodingRules:
    """Special tokens, lengths and the n-gram rule, shared by all decoding strategies."""

    start_id: int
    end_id: int
    max_length: Any
    limits: Any = None
    min_length: int = 0
    no_repeat_ngram: int = 0

    def __post_init__(self):
        check_range("end_id", self.end_id, 1)
        check_range("max_length", self.max_length, 1)
        check_range("min_length", self.min_length, 0)
        check_range("no_repeat_ngram", self.no_repeat_ngram, 0)

    def sentence_limits(self, batch_size):
        """The maximum number of tokens of each sentence."""
        if self.limits is None:
            return tf.fill((batch_size,), self.max_length)
        limits = tf.convert_to_tensor(self.limits, tf.int32)
        if limits.shape.rank != 1:
            raise ArgumentError(
                "limits", "one for each sentence, shape (B,)", f"shape {limits.shape}"
            )
        count = tf.size(limits)
        message = ["limits: expected one for each of", batch_size, "sentences, got", count]
        tf.debugging.Assert(tf.equal(count, batch_size), message)
        check_range("limits", limits, 1)
        return tf.minimum(limits, self.max_length)
