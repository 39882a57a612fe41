"""A loss that is not finite stops the training, which says where it comes from."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import FusedAdam, GlobalLossScale, Transformer
from tf_transformer.data import BucketedBatches
from tf_transformer.data.batches import epochs_dataset
from tf_transformer.training import SmoothedCrossentropy, resumable_fit
from tf_transformer.training.callbacks import first_not_finite

pytestmark = pytest.mark.fault


class Batches:
    """Four batches per epoch, one with inputs or labels that are not finite."""

    steps_per_epoch = 4

    def __init__(self, at, x=1.0, y=1.0):
        self.at, self.x, self.y = at, x, y

    def epoch(self, number, first_step):
        for step in range(first_step, 4):
            bad = (number, step) == self.at
            x, y = (self.x, self.y) if bad else (1.0, 1.0)
            yield np.full((2, 1), x, np.float32), np.full((2, 1), y, np.float32)

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        signature = (tf.TensorSpec((2, 1)),) * 2
        return epochs_dataset(self, signature, first_epoch, first_step, epochs)


def model():
    layers = [keras.layers.Dense(3, name="first"), keras.layers.Dense(1, name="last")]
    model = keras.Sequential([keras.Input((1,)), *layers], name="whole")
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize(
    "bad, said",
    [
        ({"x": np.nan}, "the layer whole / first is the first with a number that is not finite"),
        ({"y": np.inf}, "all layers are finite and the loss is inf: look at its labels"),
    ],
)
@pytest.mark.one_of(4)
def test_step_and_layer_are_named_and_nothing_is_lost(tmp_path, bad, said):
    one = model()
    message = (
        f"loss: expected a finite .* in epoch 2, step 3. With .*after 1 epochs and 0 steps, {said}"
    )
    with pytest.raises(ValueError, match=message):
        resumable_fit(one, Batches((1, 2), **bad), Batches(None), tmp_path, epochs=3)
    assert all(np.isfinite(weight).all() for weight in one.get_weights())
    names = [path.name for path in sorted((tmp_path / "checkpoints").iterdir())]
    assert names == ["epoch-00000-step-00000000.npz", "epoch-00001-step-00000000.npz"]
    resumable_fit(model(), Batches(None), Batches(None), tmp_path, epochs=3)  # mended data


def test_a_skipped_step_is_no_nan_but_skipping_all_steps_stops(tmp_path):
    def root_of_zero(y_true, y_pred):
        """Finite, with a gradient that is not."""
        return tf.where(y_true > 1, tf.sqrt(y_pred - y_pred), tf.square(y_pred))

    def scaled(scale):
        one = model()
        one.compile(GlobalLossScale(FusedAdam(0.1), scale), root_of_zero)
        one.optimizer.build(one.trainable_variables)
        return one

    one, batches = scaled(8.0), Batches((1, 2), y=2.0)
    resumable_fit(one, batches, Batches(None), tmp_path / "one step", epochs=2)
    assert float(one.optimizer.dynamic_scale) == 4.0 and int(one.optimizer.iterations) == 7
    one, batches = scaled(5e-4), Batches(None)
    batches.epoch = lambda *_: (row for row in [(np.ones((2, 1)), np.full((2, 1), 2.0))] * 4)
    message = "loss scale: expected at least 0.0001, got 6.3e-05 in epoch 1, step 3. With .* all of"
    with pytest.raises(ValueError, match=message):
        resumable_fit(one, batches, Batches(None), tmp_path / "all steps", epochs=2)


class Poison(keras.callbacks.Callback):
    """Makes a weight NaN after some step."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.params["steps"] - 1:
            self.model.layers[0].bias.assign([np.nan, 0, 0])


def test_weights_that_diverged_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="val_loss: expected a finite number after epoch 1"):
        resumable_fit(
            model(), Batches(None), Batches(None), tmp_path, epochs=3, callbacks=[Poison()]
        )
    [checkpoint] = (tmp_path / "checkpoints").iterdir()
    assert checkpoint.name == "epoch-00000-step-00000000.npz"


def test_the_rows_of_a_batch():
    ids = [[5 + n % 3] * (1 + n % 7) for n in range(50)]
    batches = BucketedBatches(
        ids, ids, start_id=1, end_id=2, lengths=(4, 8), tokens_per_batch=16, seed=3
    )
    seen = []
    for step, ((source, _), _) in enumerate(batches.epoch(2)):
        rows = batches.rows(2, step)
        seen.extend(rows)
        for row, found in zip(rows, source, strict=False):
            assert [n for n in found if n] == [*ids[row], 2]
    assert sorted(seen) == list(range(50))


def test_the_inner_layer_of_a_transformer_is_named():
    one = Transformer(2, 8, 2, 12, 11, 13, pe_input=16, pe_target=16, name="transformer")
    one.build()
    one.compile(loss=SmoothedCrossentropy(0.1))
    x, y = (np.array([[5, 6, 2]]), np.array([[1, 7]])), np.array([[7, 2]])
    said = first_not_finite(one, x, y)
    assert said.startswith("all of it is finite: the training diverged")
    dense = one.decoder.dec_layers[1].mha2.wv
    dense.kernel.assign(np.full(dense.kernel.shape, np.inf))
    said = first_not_finite(one, x, y)
    assert "transformer / decoder / " in said and " / wv is the first" in said
    assert "call" not in vars(dense) and "call" not in vars(one)
