"""Tokenizers out of core TensorFlow ops; nothing here imports the package `tokenizers`."""
