"""Sentence pairs and documents: corpora, file readers, splits without leaks, batches.

Each name is imported on first use, so that reading text does not import TensorFlow.
"""

from tf_transformer.lazy import lazy_names

_EXPORTS = {
    "BucketedBatches": "batches",
    "Buckets": "batches",
    "LabelledTexts": "labelled_texts",
    "LanguageModelBatches": "batches",
    "MaskedTokens": "pretraining",
    "PairSource": "source",
    "PreparedPairs": "batches",
    "PretrainingBatches": "pretraining",
    "ShardedBatches": "batches",
    "Split": "source",
    "TextSource": "source",
    "group_references": "source",
    "load_attributions": "files",
    "load_corpus": "files",
    "load_labelled_texts": "labelled_texts",
    "mask_tokens": "pretraining",
    "pairs_without": "source",
    "prepare_pairs": "preparing",
    "read_documents": "source",
    "read_files": "files",
    "read_labelled_tsv": "labelled_texts",
    "read_tsv": "files",
    "sentence_pairs": "pretraining",
    "split_documents": "source",
    "split_pairs": "source",
    "split_with_validation": "source",
    "text_blocks": "pretraining",
}

__all__ = sorted(_EXPORTS)
__getattr__, __dir__ = lazy_names(__name__, _EXPORTS)
