"""Starting TensorFlow from the command line: quietly, and with the settings that were measured."""

import gc
import os
import sys
from importlib.util import find_spec


def require(package, extra):
    """Raise ImportError, with the way to mend it, if a package is not installed."""
    if find_spec(package) is None:
        raise ImportError(f'{package} is not installed: pip install -e ".[{extra}]"')


def import_tensorflow():
    """Import TensorFlow, which prints lines at it and at the first look for devices."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Batches come and go by the hundred megabytes: TensorFlow's own allocator keeps the memory,
    # where malloc gives it back and faults it in again (benchmarks/NOTES.md).
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    # oneDNN's matrix products are the faster ones on every x86 that was measured, and TensorFlow
    # takes them by itself only on some.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
        tf.zeros(())  # the first tensor makes TensorFlow print once more
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
    # Tracing makes garbage by the million, and every collection would walk through all that the
    # imports made: a quarter of the time to the first step.
    gc.freeze()
