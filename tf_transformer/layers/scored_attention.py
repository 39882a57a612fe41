"""What the attention layers with other scores have in common.

Axes: T target (query) length, S source (key) length. Leading axes (batch, heads) are "...".
"""

from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.layers.notes_layer import NotesLayer


class ScoredAttention(NotesLayer):
    """Mixin for attention by a function of `functional.scores`, which `_attend` calls."""

    def call(
        self,
        q,
        k,
        v,
        mask=None,
        return_attention_weights=True,
        causal=False,
        *,
        k_mask=None,
        v_mask=None,
    ):
        """See the subclasses."""
        return self._attend(
            q,
            k,
            v,
            mask=with_key_masks(mask, k, k_mask, v_mask),
            causal=causal,
            return_attention_weights=return_attention_weights,
        )
