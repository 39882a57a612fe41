"""Decoding with any step function."""

from tf_transformer.generation.beam_search import beam_search
from tf_transformer.generation.continue_texts import continue_texts
from tf_transformer.generation.decoding import (
    gather_rows,
    greedy_decode,
    repeat_rows,
    sample_decode,
)
from tf_transformer.generation.ensemble import Ensemble
from tf_transformer.generation.generate import generate

__all__ = [
    "Ensemble",
    "beam_search",
    "continue_texts",
    "gather_rows",
    "generate",
    "greedy_decode",
    "repeat_rows",
    "sample_decode",
]
