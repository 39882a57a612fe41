"""Warming up a function before it serves."""

import time

import tensorflow as tf


def warm_up(function, calls):
    """Call a function once with each set of arguments, so that later calls are fast.

    A `tf.function` is traced, and XLA compiles, on the first call with a new kind of input; tables,
    thread pools and oneDNN kernels are initialized then too. Call this before a server reports that
    it is ready. One call of `Translator.translate` is enough for all batch sizes and lengths; with
    `jit_compile=True`, call it once for each shape or bucket.

    Args:
        function: a callable that returns tensors: a `tf.function`, a loaded signature, a layer.
        calls: iterable of tuples, the arguments of each call.

    Returns:
        list of float, the seconds of each call.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> len(warm_up(double, [(tf.ones((1,)),), (tf.ones((8,)),)]))
        2
    """
    seconds = []
    for arguments in calls:
        start = time.perf_counter()
        for tensor in tf.nest.flatten(function(*arguments)):
            tensor.numpy()  # wait for the result
        seconds.append(time.perf_counter() - start)
    return seconds
