"""Making a function ready before its first real caller."""

import time

import tensorflow as tf


def warm_up(function, calls):
    """Call a function once with each of some arguments, so that later calls find it built.

    A `tf.function` traces and XLA compiles when a new kind of input comes for the first time;
    tables, thread pools and oneDNN's kernels are made ready then too. A server calls this before
    it says that it is up. One call of `Translator.translate` will do for all batch sizes and
    lengths; a function or a translator with `jit_compile=True` wants one for each shape or bucket.

    Args:
        function: a callable that gives tensors: a `tf.function`, a loaded signature, a layer.
        calls: iterable of tuples, the arguments of one call each.

    Returns:
        list of float, the seconds that each call took.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> len(warm_up(double, [(tf.ones((1,)),), (tf.ones((8,)),)]))
        2
    """
    seconds = []
    for arguments in calls:
        start = time.perf_counter()
        for tensor in tf.nest.flatten(function(*arguments)):
            tensor.numpy()  # waits for the result
        seconds.append(time.perf_counter() - start)
    return seconds
