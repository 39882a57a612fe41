"""Parts that tell a model the order of its tokens, one file for each."""

from tf_transformer.layers.positions.alibi_positions import AlibiPositions
from tf_transformer.layers.positions.learned_positions import LearnedPositions
from tf_transformer.layers.positions.no_positions import NoPositions
from tf_transformer.layers.positions.positions import Positions
from tf_transformer.layers.positions.rotary_positions import RotaryPositions
from tf_transformer.layers.positions.shaw_positions import ShawPositions
from tf_transformer.layers.positions.sinusoidal_positions import SinusoidalPositions
from tf_transformer.layers.positions.t5_positions import T5Positions

__all__ = [
    "AlibiPositions",
    "LearnedPositions",
    "NoPositions",
    "Positions",
    "RotaryPositions",
    "ShawPositions",
    "SinusoidalPositions",
    "T5Positions",
]
