"""This library's attention core with the causal flag and without."""

from peers import attention_ours


def variants(case, arrays):
    """Both on the same inputs; their outputs differ."""
    return {
        name: attention_ours.variants({**case, "causal": causal}, arrays)["tf_transformer"]
        for name, causal in (("causal", True), ("not causal", False))
    }
