"""This library's attention core."""

from benchmarks.attention.peers.plain_tensorflow import timed
from tf_transformer import scaled_dot_product_attention


def variants(case, arrays):
    """With the plan that "auto" chooses."""

    def attend(q, k, v):
        return scaled_dot_product_attention(
            q, k, v, causal=case["causal"], return_attention_weights=False
        )[0]

    return {"tf_transformer": timed(attend, case, arrays)}
