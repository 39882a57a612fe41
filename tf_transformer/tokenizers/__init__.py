"""Text to ids and back: trained and run in Python, or run inside a TensorFlow graph.

`BPETokenizer` never imports TensorFlow and `GraphBPE` never imports the `tokenizers` package, so
each is imported only when its name is first used.
"""

from importlib import import_module

_EXPORTS = {"BPETokenizer": "bpe", "GraphBPE": "graph_bpe"}

__all__ = sorted(_EXPORTS)


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__():
    return __all__
