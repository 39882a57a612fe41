"""Train on one device and on two replicas of `MirroredStrategy`, and compare every step.

`python mirrored_program.py FOLDER`. Prints one line of JSON. The two devices are logical CPUs.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from noisy_halves import NoisyHalves

from tf_transformer import Transformer
from tf_transformer.data import BucketedBatches
from tf_transformer.training import (
    FusedAdam,
    MaskedAccuracy,
    MovingAverage,
    RDrop,
    SmoothedCrossentropy,
    accumulate_gradients,
    resumable_fit,
)

rng = np.random.default_rng(1)
IDS = [list(map(int, rng.integers(3, 20, rng.integers(1, 8)))) for _ in range(63)]
BATCHES = BucketedBatches(IDS, IDS, start_id=1, end_id=2, lengths=(8,), tokens_per_batch=56)


class Log(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rows = []

    def on_train_batch_end(self, batch, logs=None):
        self.rows.append([logs["loss"], logs["accuracy"]])

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append([logs["val_loss"], logs["val_accuracy"]])


def trained(scope, folder, epochs):
    keras.utils.set_random_seed(1)
    log = Log()
    with scope:
        model = Transformer(1, 8, 2, 16, 20, 20, pe_input=16, pe_target=16, rate=0.0)
        model.build()
        model = RDrop(model, 1.0)
        model.build()
        # The large epsilon keeps Adam from enlarging the rounding of gradients that are nearly 0.
        optimizer = FusedAdam(1e-2, epsilon=1e-3, use_ema=True, global_clipnorm=0.5)
        optimizer.build(model.trainable_variables)
        model.compile(optimizer, SmoothedCrossentropy(0.1), metrics=[MaskedAccuracy()])
        with contextlib.redirect_stdout(io.StringIO()):
            average = MovingAverage()
            resumable_fit(
                model, BATCHES, BATCHES, folder, epochs=epochs, average=average, callbacks=[log]
            )
    return log.rows


def r_drop(scope, parts):
    """The loss of some steps of `RDrop`, and the weights."""
    x = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
    y = np.array([1, 2, 3, 0, 1, -1, -1, 2])  # -1 does not count: unequal parts
    with scope:
        model = RDrop(NoisyHalves(), 5.0)
        model.model.build()
        model.build()
        model.compile(FusedAdam(1e-2, epsilon=1e-1), SmoothedCrossentropy(0.0), jit_compile=False)
        accumulate_gradients(model, parts)
        data = tf.data.Dataset.from_tensors((x, y)).repeat()
        history = model.fit(data, steps_per_epoch=1, epochs=4, verbose=0, shuffle=False).history
    return [*history["loss"], *map(float, np.ravel(model.model.kernel.numpy()))]


def main(folder):
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    rows = {
        "one": trained(contextlib.nullcontext(), folder / "one", 3),
        "two": trained(two.scope(), folder / "two", 2) + trained(two.scope(), folder / "two", 3),
    }
    rows["r_drop"] = [r_drop(contextlib.nullcontext(), 1), r_drop(two.scope(), 1)]
    rows["parts"] = [r_drop(contextlib.nullcontext(), 1), r_drop(two.scope(), 3)]
    print(json.dumps({**rows, "resumed": len(rows["one"]) == len(rows["two"])}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
