"""Attention with other scores than the scaled dot product."""

from tf_transformer.functional.scores.additive import additive_attention
from tf_transformer.functional.scores.bilinear import bilinear_attention
from tf_transformer.functional.scores.multiplicative import multiplicative_attention

__all__ = ["additive_attention", "bilinear_attention", "multiplicative_attention"]
