"""Tokenizers: trained and run in Python, or run inside a TensorFlow graph.

The Python classes never import TensorFlow and the graph classes never import the `tokenizers`
package, so each is imported only when its name is first used.
"""

from importlib import import_module

_EXPORTS = {
    "BPETokenizer": "bpe",
    "GraphBPE": "graph.graph_bpe",
    "GraphTokenizer": "graph.graph_tokenizer",
    "GraphUnigram": "graph.graph_unigram",
    "GraphWordPiece": "graph.graph_wordpiece",
    "Tokenizer": "tokenizer",
    "TokenizerFile": "tokenizer_file",
    "UnigramTokenizer": "unigram",
    "WordPieceTokenizer": "wordpiece",
    "bert_pipeline": "pipeline",
    "byte_level_pipeline": "pipeline",
    "metaspace_pipeline": "pipeline",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__():
    return __all__
