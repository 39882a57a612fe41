"""Decoding, over any step function."""

from tf_transformer.generation.beam_search import beam_search
from tf_transformer.generation.continue_texts import continue_texts
from tf_transformer.generation.decode_loop import gather_rows, repeat_rows
from tf_transformer.generation.ensemble import Ensemble
from tf_transformer.generation.sampling import greedy_decode, sample_decode

__all__ = [
    "Ensemble",
    "beam_search",
    "continue_texts",
    "gather_rows",
    "greedy_decode",
    "repeat_rows",
    "sample_decode",
]
