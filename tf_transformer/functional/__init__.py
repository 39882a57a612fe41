"""Stateless maths on tensors: what the layers are made of."""

from tf_transformer.functional.attention import scaled_dot_product_attention
from tf_transformer.functional.attention_plan import AttentionPlan, attention_plan
from tf_transformer.functional.check_mask import check_mask
from tf_transformer.functional.masks import (
    additive_mask,
    create_look_ahead_mask,
    create_masks,
    create_padding_mask,
    create_sequence_to_sequence_mask,
)

__all__ = [
    "AttentionPlan",
    "additive_mask",
    "attention_plan",
    "check_mask",
    "create_look_ahead_mask",
    "create_masks",
    "create_padding_mask",
    "create_sequence_to_sequence_mask",
    "scaled_dot_product_attention",
]
