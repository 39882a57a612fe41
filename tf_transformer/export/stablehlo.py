"""Functions as StableHLO, which compilers for accelerators read."""

import re

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError


def stablehlo(function, *specs):
    """Compile a function for XLA and return it as StableHLO text, without running it.

    The text is lowered for a GPU, whether or not there is one, but names no device: the same
    program runs on a TPU or anything else that reads StableHLO without TensorFlow
    (`python -m benchmarks accelerator`).

    Args:
        function: a callable from tensors to tensors.
        *specs: `tf.TensorSpec`, one for each argument, with a fully known shape.

    Returns:
        str, one module whose `main` takes the arguments in order, without source locations.

    Raises:
        ValueError: If the shape of a spec is not fully known; XLA compiles for one shape.

    Example:
        >>> text = stablehlo(lambda x: x + x, tf.TensorSpec((2, 3)))
        >>> "stablehlo.add" in text and "tensor<2x3xf32>" in text
        True
    """
    for i, spec in enumerate(specs):
        if not spec.shape.is_fully_defined():
            raise ArgumentError(
                f"specs[{i}]", "a fully known shape, since XLA compiles for one shape", spec.shape
            )
    # Default arguments would count as inputs without a shape.
    compiled = tf.function(lambda *args: function(*args), jit_compile=True, autograph=False)
    text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo", platform_name="GPU")
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r' loc\((?:"[^"]*"|\([^()]*\)|[^()"])*\)', "", text)
    return re.sub(_BOOLEANS, _as_bytes, text)


_BOOLEANS = r'(%\w+) = stablehlo\.constant dense<"0x(\w+)"> : tensor<([\dx]+)xi1>'


def _as_bytes(match):
    """Write a constant mask with one byte per element: readers disagree about packed booleans."""
    name, packed, shape = match.groups()
    size = np.prod([int(n) for n in shape.split("x")])
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8), bitorder="little")[:size]
    return (
        f'{name}_i8 = stablehlo.constant dense<"0x{bits.tobytes().hex()}"> : tensor<{shape}xi8>\n'
        f"    {name} = stablehlo.convert {name}_i8 : (tensor<{shape}xi8>) -> tensor<{shape}xi1>"
    )
