"""Sentence pairs: the embedded corpora, readers for files, and a split that does not leak.

Each name is imported when it is first used, so that reading text never imports TensorFlow.
"""

from importlib import import_module

_EXPORTS = {
    "BucketedBatches": "batches",
    "LabelledTexts": "labelled_texts",
    "PairSource": "source",
    "Split": "split",
    "group_references": "split",
    "load_attributions": "corpus",
    "load_corpus": "corpus",
    "load_labelled_texts": "labelled_texts",
    "read_files": "readers",
    "read_labelled_tsv": "labelled_texts",
    "read_tsv": "readers",
    "split_pairs": "split",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__():
    return __all__
