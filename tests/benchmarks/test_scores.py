"""The benchmark of scores: the parameters it names, and one case of each."""

import numpy as np
import pytest

from benchmarks.attention import scores
from benchmarks.attention.peers import scores as peer


@pytest.mark.parametrize("score", scores.PARAMETERS)
def test_every_score_has_the_stated_parameters_and_runs(score):
    layer = peer.layer(score, scores.WIDTH)
    assert layer.count_params() == scores.PARAMETERS[score]
    arrays = scores.inputs(3)
    shape = (scores.HEADS, 3, scores.WIDTH)
    assert arrays["g"].shape == shape
    outputs = []
    for task in ("forward", "both"):
        [(name, function)] = peer.variants({"score": score, "task": task}, arrays).items()
        output, *gradients = function()
        assert name == score and output.shape == shape
        assert len(gradients) == (0 if task == "forward" else 3 + len(layer.weights))
        outputs.append(output)
    if layer.count_params() == 0:
        np.testing.assert_array_equal(*outputs)
