"""This library's core, the formula in TensorFlow and Keras' attention, each compiled with XLA."""

from benchmarks.attention.peers import keras_ops, ours, plain_tensorflow
from benchmarks.attention.peers.plain_tensorflow import timed

LIBRARIES = {"tf_transformer": ours, "TensorFlow": plain_tensorflow, "Keras": keras_ops}


def variants(case, arrays):
    """The function of each library, inside a `tf.function(jit_compile=True)`."""
    return {
        f"{name}, XLA": timed(library.attention(case), case, arrays, jit_compile=True)
        for name, library in LIBRARIES.items()
    }
