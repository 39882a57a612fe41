"""Training in half precision is that in float32, whether or not steps overflow."""

import keras
import numpy as np
import pytest

from tf_transformer import FusedAdam, GlobalLossScale, LanguageModel, SmoothedCrossentropy
from tf_transformer.training.runs.run import precision_scope

pytestmark = pytest.mark.one_of(10, "long")

STEPS, GROWTH = 200, 10


def trained(precision):
    """A model of sentences that count from any number, its losses and its loss scales."""
    keras.utils.set_random_seed(1)
    with precision_scope(precision):
        model = LanguageModel(1, 16, 2, 24, 11, max_position=8, rate=0.0)
        model.build()
    optimizer = FusedAdam(0.01, epsilon=1e-5, global_clipnorm=1.0)
    if precision == "mixed_float16":
        optimizer = GlobalLossScale(optimizer, 2.0**30, dynamic_growth_steps=GROWTH)
    model.compile(optimizer, SmoothedCrossentropy(0.1), jit_compile=False)
    ids = 1 + (np.arange(10)[:, None] + np.arange(8)) % 10
    losses, scales = [], []
    for _ in range(STEPS):
        model.reset_metrics()  # Keras before 3.15 returns the mean over calls
        losses.append(float(model.train_on_batch(ids[:, :-1], ids[:, 1:])))
        scales.append(float(getattr(optimizer, "dynamic_scale", 0)))
    return model, losses, np.array(scales)


@pytest.fixture(scope="module")
def float32():
    return trained("float32")


@pytest.mark.parametrize(
    "precision", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.whole)]
)
def test_losses_are_those_of_float32(float32, precision):
    _, expected, _ = float32
    model, losses, scales = trained(precision)
    assert expected[-1] < 0.4 * expected[0]
    np.testing.assert_allclose(losses[0], expected[0], rtol=0.01)
    np.testing.assert_allclose(losses[-1], expected[-1], rtol=0.01)
    for weight in model.get_weights():
        assert weight.dtype == np.float32 and np.isfinite(weight).all()
    if precision == "mixed_float16":
        halved = int((np.diff([2.0**30, *scales]) < 0).sum())
        assert halved >= STEPS // GROWTH / 2  # from the top, then when it has grown
        assert int(model.optimizer.iterations) == STEPS - halved
