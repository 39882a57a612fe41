"""Exported classifiers: strings to classes."""

from tf_transformer.export.classification.early_exit_classifier import EarlyExitClassifier
from tf_transformer.export.classification.text_classifier import TextClassifier

__all__ = [
    "EarlyExitClassifier",
    "TextClassifier",
]
