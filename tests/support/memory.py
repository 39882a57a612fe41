"""Free the graphs that tests leave behind, so that a process of tests stays below 3 GB."""

import ctypes
import gc
import sys
from pathlib import Path

_STATUS = Path("/proc/self/statm")
_resident = 0  # pages after the last collection
_caches = []


def cleared(cache):
    """Decorate a function with a cache that is cleared when memory has grown."""
    _caches.append(cache)
    return cache


def custom_gradients():
    """Names of the gradients that graphs registered. TensorFlow never deletes them."""
    ops = sys.modules.get("tensorflow.python.framework.ops")
    registered = ops.gradient_registry._registry if ops else ()
    return {name for name in registered if name.startswith("CustomGradient-")}


def free_if_grown(gradients=()):
    """Once a quarter of a gigabyte came in, free graphs, also those these gradients hold.

    They are cycles of millions of objects, which Python collects too late.
    """
    global _resident
    if not _STATUS.is_file() or _resident_pages() <= _resident + 60_000:
        return
    gc.unfreeze()  # a command that runs in this process freezes what is alive
    for cache in _caches:
        cache.cache_clear()
    for name in gradients:
        del sys.modules["tensorflow.python.framework.ops"].gradient_registry._registry[name]
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    _resident = _resident_pages()


def _resident_pages():
    return int(_STATUS.read_text().split()[1])  # of 4 KiB
