"""A function whose weights are constants."""

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from tf_transformer.errors import ArgumentError


def freeze(function, *specs):
    """Trace a function as a plain graph, with the values of its variables as constants.

    oneDNN packs a constant matrix once, and a variable in each call. That pays for bfloat16 on a
    processor with AMX, where packing takes about as long as multiplying: BERT-base's encoder takes
    0.7 of the time for 8 texts of 128 tokens, half for one of 16 (benchmarks/models/NOTES.md). The
    constants are copies, and so are the packed matrices; later changes of the variables have no
    effect.

    Args:
        function: maps tensors to a nest of tensors, for example a layer or a loaded signature.
        *specs: a `tf.TensorSpec` for each argument; sizes that vary are None.

    Returns:
        A function of the same arguments, given by position as tensors or arrays.

    Raises:
        ValueError: If a spec is not a `tf.TensorSpec`, or a call has another number of arguments.

    Example:
        >>> layer = keras.layers.Dense(3)
        >>> layer.build((None, 2))
        >>> frozen = freeze(layer, tf.TensorSpec((None, 2)))
        >>> frozen(tf.ones((5, 2))).shape.as_list()
        [5, 3]
    """
    for spec in specs:
        if not isinstance(spec, tf.TensorSpec):
            raise ArgumentError(
                "specs", "a tf.TensorSpec(shape, dtype) for each argument", f"{spec!r}"
            )
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    frozen = convert_variables_to_constants_v2(traced, lower_control_flow=False)
    # What is not a variable, such as a vocabulary's table, stays an input.
    kept = {x.name for x in frozen.inputs[len(specs) :]}
    others = [x for x, inside in traced.graph.captures if inside.name in kept]

    def call(*inputs):
        if len(inputs) != len(specs):
            raise ArgumentError("inputs", f"{len(specs)} arguments, one for each spec", len(inputs))
        inputs = [
            tf.convert_to_tensor(x, spec.dtype) for x, spec in zip(inputs, specs, strict=True)
        ]
        return tf.nest.pack_sequence_as(traced.structured_outputs, frozen(*inputs, *others))

    return call
