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
from tf_transformer.functional.scores import (
    additive_attention,
    bilinear_attention,
    multiplicative_attention,
)
from tf_transformer.moved import keep_old_paths

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

keep_old_paths(
    __name__,
    {
        "attention_plan": "attention.plan",
        "blocks": "attention.blocks",
        "blockwise_attention": "attention.blockwise",
        "cached_attention": "attention.cached",
        "check_mask": "attention.check_mask",
        "layer_norm": "norms",
        "masks": "attention.masks",
        "product": "attention.product",
        "rows": "attention.rowwise_loops",
        "rowwise_attention": "attention.rowwise",
        "whole_attention": "attention.whole",
    },
)
