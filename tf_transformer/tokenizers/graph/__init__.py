"""Tokenizers built from core TensorFlow ops, independent of the package `tokenizers`."""
