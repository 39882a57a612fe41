"""The program that an accelerator gets."""

import re

import tensorflow as tf


def stablehlo(function, *specs):
    """Compile a function for XLA and return it as StableHLO text, without running it.

    The text is made for a GPU, with or without one here, and names no device: a TPU gets the same,
    and so does whatever reads StableHLO without TensorFlow (`benchmarks/accelerator.py`).

    Args:
        function: a callable of tensors that gives tensors.
        *specs: `tf.TensorSpec`, one for each argument, of fully known shape.

    Returns:
        str, one module, whose `main` takes the arguments in their order. Where an operation came
        from in the source is left out.

    Raises:
        ValueError: a spec whose shape is not fully known, since XLA compiles for one shape.

    Example:
        >>> text = stablehlo(lambda x: x + x, tf.TensorSpec((2, 3)))
        >>> "stablehlo.add" in text and "tensor<2x3xf32>" in text
        True
    """
    for i, spec in enumerate(specs):
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"specs[{i}]: expected a fully known shape, since XLA compiles for one shape, got "
                f"{spec.shape}."
            )
    # Arguments that are left to their defaults would count as inputs without a shape.
    compiled = tf.function(lambda *args: function(*args), jit_compile=True, autograph=False)
    text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo", platform_name="GPU")
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r" loc\((?:#loc\d*|\"[^\"]*\")\)", "", text)
