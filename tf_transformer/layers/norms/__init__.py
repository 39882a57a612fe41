"""Normalisations, one file for each."""

from tf_transformer.layers.norms.batch_norm import BatchNorm
from tf_transformer.layers.norms.layer_norm import LayerNorm
from tf_transformer.layers.norms.naive_batch_norm import NaiveBatchNorm
from tf_transformer.layers.norms.rms_norm import RMSNorm

__all__ = ["BatchNorm", "LayerNorm", "NaiveBatchNorm", "RMSNorm"]
