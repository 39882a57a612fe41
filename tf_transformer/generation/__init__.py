"""Decoding, over any step function."""

from tf_transformer.generation.greedy import greedy_decode

__all__ = ["greedy_decode"]
