"""Ways to join a sublayer to its input, one file for each."""

from tf_transformer.layers.residuals.no_residual import NoResidual
from tf_transformer.layers.residuals.post_norm import PostNorm
from tf_transformer.layers.residuals.pre_norm import PreNorm
from tf_transformer.layers.residuals.residual import Residual

__all__ = ["NoResidual", "PostNorm", "PreNorm", "Residual"]
