"""Scaled dot-product attention: the entry point, its plans, and masks."""

from tf_transformer.functional.attention.masks import (
    additive_mask,
    check_mask,
    create_look_ahead_mask,
    create_masks,
    create_padding_mask,
    create_sequence_to_sequence_mask,
)
from tf_transformer.functional.attention.plan import AttentionPlan, attention_plan
from tf_transformer.functional.attention.scaled_dot_product import scaled_dot_product_attention

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
