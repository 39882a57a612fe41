"""Stateless tensor operations that the layers are built from."""

from tf_transformer.functional.attention import (
    AttentionPlan,
    additive_mask,
    attention_plan,
    check_mask,
    create_look_ahead_mask,
    create_masks,
    create_padding_mask,
    create_sequence_to_sequence_mask,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention.scored import (
    additive_attention,
    bilinear_attention,
    multiplicative_attention,
)

__all__ = [
    "AttentionPlan",
    "additive_attention",
    "additive_mask",
    "attention_plan",
    "bilinear_attention",
    "check_mask",
    "create_look_ahead_mask",
    "create_masks",
    "create_padding_mask",
    "create_sequence_to_sequence_mask",
    "multiplicative_attention",
    "scaled_dot_product_attention",
]
