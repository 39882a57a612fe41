"""Smaller and faster models."""

from tf_transformer.compression.sequence_distillation import distilled_pairs

__all__ = ["distilled_pairs"]
