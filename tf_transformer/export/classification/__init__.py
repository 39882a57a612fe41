"""Exported classifiers: strings to classes."""

from tf_transformer.export.classification.text_classifier import TextClassifier

__all__ = [
    "TextClassifier",
]
