"""Stateless maths on tensors: what the layers are made of."""

from tf_transformer.functional.attention import scaled_dot_product_attention
from tf_transformer.functional.attention_plan import AttentionPlan, attention_plan
from tf_transformer.functional.check_mask import check_mask
from tf_transformer.functional.masks import (
    create_look_ahead_mask,
    create_masks,
    create_padding_mask,
)

__all__ = [
    "AttentionPlan",
    "attention_plan",
    "check_mask",
    "create_look_ahead_mask",
    "create_masks",
    "create_padding_mask",
    "scaled_dot_product_attention",
]
