"""Carrying out a recipe: a smaller model step by step, and what each step costs and brings."""

from tf_transformer.export.chain.chain import compress

__all__ = ["compress"]
