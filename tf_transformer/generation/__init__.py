"""Decoding with any step function."""

from tf_transformer.generation.beam_search import beam_search, sample_decode
from tf_transformer.generation.decoding import gather_rows, greedy_decode, repeat_rows
from tf_transformer.generation.generate import Ensemble, continue_texts, generate

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
