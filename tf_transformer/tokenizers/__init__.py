"""Tokenizers: trained and run in Python, or run inside a TensorFlow graph.

Each name is imported on first use: the Python classes never import TensorFlow, and the graph
classes never import the `tokenizers` package.
"""

from tf_transformer.lazy import lazy_names

_EXPORTS = {
    "BPETokenizer": "models",
    "ChatTemplate": "chat_template",
    "GraphBPE": "graph.models",
    "GraphSentencePieceBPE": "graph.models",
    "GraphSentencePieceUnigram": "graph.models",
    "GraphTokenizer": "graph.graph_tokenizer",
    "GraphUnigram": "graph.models",
    "GraphWordPiece": "graph.models",
    "Tokenizer": "tokenizer",
    "TokenizerFile": "tokenizer_file",
    "UnigramTokenizer": "models",
    "WordPieceTokenizer": "models",
    "bert_pipeline": "pipeline",
    "byte_level_pipeline": "pipeline",
    "metaspace_pipeline": "pipeline",
    "read_sentencepiece": "tokenizer_file",
    "train_subwords": "models",
}

__all__ = sorted(_EXPORTS)
__getattr__, __dir__ = lazy_names(__name__, _EXPORTS)
