"""Importing TensorFlow for the command line: quietly, with the fastest settings."""

import gc
import os
import sys
from importlib.util import find_spec

from tf_transformer.errors import MissingPackage


def require(extra, *packages):
    """Raise an ImportError with the command that installs an extra if a package is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackage(f'{package} is not installed: pip install -e ".[{extra}]"')


def import_tensorflow(optimize_graphs=True, share_operations=True, start=None):
    """Import TensorFlow without the lines that it prints on import and first use."""
    if not share_operations:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Batches allocate and free hundreds of megabytes: TensorFlow's allocator keeps the memory,
    # while malloc returns it and causes new page faults (benchmarks/training/NOTES.md).
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    # oneDNN's matrix products were faster on every x86 processor measured, but TensorFlow enables
    # them by default only on some.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        import tensorflow as tf

        options = {"disable_meta_optimizer": not optimize_graphs}
        tf.config.optimizer.set_experimental_options(options)
        tf.config.list_physical_devices()
        started = start() if start else None
        tf.zeros(())  # the first tensor prints more lines
        if tf.__version__ < "2.21":  # so does the first XLA program, whatever the log level
            tf.function(lambda: tf.zeros(()), jit_compile=True)()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
    # Tracing allocates millions of objects, and every collection would also visit the objects of
    # the imports: a quarter of the time to the first step.
    gc.freeze()
    return started
