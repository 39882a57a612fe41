"""This library's attention core."""

from benchmarks.attention.peers.plain_tensorflow import timed
from tf_transformer import scaled_dot_product_attention


def attention(case):
    """With the plan that "auto" chooses."""

    def attend(q, k, v):
        return scaled_dot_product_attention(
            q, k, v, causal=case["causal"], return_attention_weights=False
        )[0]

    return attend


def variants(case, arrays):
    """As a plain graph, which is what "auto" runs on a CPU."""
    return {"tf_transformer": timed(attention(case), case, arrays)}
