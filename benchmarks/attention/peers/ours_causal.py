"""This library's attention core with and without the causal flag."""

from benchmarks.attention.peers import ours


def variants(case, arrays):
    """Both on the same inputs; their outputs differ."""
    return {
        name: ours.variants({**case, "causal": causal}, arrays)["tf_transformer"]
        for name, causal in (("causal", True), ("not causal", False))
    }
