"""Decoding the parts of a batch in parallel."""

import functools

import tensorflow as tf

from tf_transformer.export.cores import cores

# A step with fewer rows takes almost as long.
_LEAST_ROWS = 16


def in_parts(decode, ids):
    """Decode a batch in two parts on two cores, in four on four.

    A decoder step consists of many small operations, with which XLA keeps little more than one core
    busy (benchmarks/decoding/NOTES.md). Rows are assigned in turn, so that a batch sorted by
    length gives parts that take the same time. A part has at least 16 rows. A GPU uses one part.
    """
    # Traced once, so that all parts share the programs that XLA compiles.
    signature = [tf.TensorSpec((None, None), ids.dtype)]
    decode = tf.function(decode, input_signature=signature, autograph=False)
    counts = [count for count in (1, 2, 4) if count <= cores()]
    enough = tf.shape(ids)[0] >= [count * _LEAST_ROWS for count in counts[1:]]
    return tf.switch_case(
        tf.math.count_nonzero(enough, dtype=tf.int32),
        [functools.partial(_decode_parts, decode, ids, count) for count in counts],
    )


def _decode_parts(decode, ids, count):
    parts = [decode(ids[first::count]) for first in range(count)]
    return tf.nest.map_structure(_in_turn, *parts)


def _in_turn(*parts):
    rows = tf.stack(parts, axis=1)
    return tf.reshape(rows, tf.concat([[-1], tf.shape(rows)[2:]], 0))
