"""Warming up a function before or while it serves."""

import logging
import threading
import time

import tensorflow as tf



def warm_up(function, calls):
    """Call a function once with each set of arguments, so that later calls are fast.

    A `tf.function` is traced, and XLA compiles, on the first call with a new kind of input; tables,
    thread pools and oneDNN kernels are initialized then too. Call this before a server reports that
    it is ready. One call of `Translator.translate` is enough for all batch sizes and lengths. XLA
    compiles a program for each bucket: pass the model's own `warm_up` and the sizes of the buckets,
    or with `jit_compile=True` one batch for each.

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


def warm_up_in_background(function, calls):
    """Run `warm_up` in a thread, while the process does other work.

    The thread ends early, after the call that it is in, when the main thread ends.

    Args:
        function, calls: see `warm_up`. An error of a call is logged and ends the thread.

    Returns:
        `threading.Thread`, which runs; `join` waits for it.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> thread = warm_up_in_background(double, [(tf.ones((1,)),)])
        >>> thread.join()
    """

    def run():
        try:
            for arguments in calls:
                if not threading.main_thread().is_alive():
                    return
                warm_up(function, [arguments])
        except Exception as error:  # what serves goes on
            _log.warning("warm_up: a call failed, those after it are left out: %s", error)

    # Not a daemon: a process must not end in the middle of a compilation.
    thread = threading.Thread(target=run)
    thread.start()
    return thread
