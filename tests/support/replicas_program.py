"""Train on one device and on two replicas and print the results as JSON for test_replicas.py.

A separate program because logical devices must be configured before TensorFlow starts.

Axes: B batch, T length.
"""

import faulthandler
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from tf_transformer import (
    Encoder,
    FusedAdam,
    GlobalLossScale,
    MaskedAccuracy,
    SmoothedCrossentropy,
    TokenCrossentropy,
)

# 7 real target tokens on the first replica, 1 on the second.
IDS = np.array([[1, 5, 6, 7], [1, 8, 4, 0], [1, 0, 0, 0], [0, 0, 0, 0]], np.int32)
LABELS = np.array([[5, 6, 7, 2], [8, 4, 2, 0], [2, 0, 0, 0], [0, 0, 0, 0]], np.int32)
ONE_TOKEN = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]], np.int32)


def new_model():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([Encoder(1, 6, 3, 5, 11, 4, rate=0.0), keras.layers.Dense(13)])
    model.build((None, 4))
    return model


def fit_once(strategy):
    """Return the history of `fit` and the change of every weight after one SGD step."""
    with strategy.scope():
        model = new_model()
        model.compile(
            optimizer=keras.optimizers.SGD(1.0),
            loss=SmoothedCrossentropy(),
            metrics=[MaskedAccuracy(), TokenCrossentropy(0.1)],
            jit_compile=False,
            run_eagerly=strategy.num_replicas_in_sync == 1,  # two replicas need a graph
        )
    before = model.get_weights()
    dataset = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(4)
    history = model.fit(dataset, shuffle=False, verbose=0).history
    steps = [(b - a).tolist() for b, a in zip(before, model.get_weights(), strict=True)]
    return {
        "loss": history["loss"],
        "accuracy": history["accuracy"],
        "token_loss": history["token_loss"],
        "steps": steps,
    }


def fit_with_fused_adam(strategy):
    """Return all optimizer variables after three steps, including the moving average."""
    with strategy.scope():
        model = new_model()
        optimizer = FusedAdam(0.01, epsilon=1e-3, use_ema=True)  # no step dominated by rounding
        model.compile(optimizer, SmoothedCrossentropy(), jit_compile=False)
    dataset = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(4).repeat(3)
    model.fit(dataset, shuffle=False, verbose=0)
    return [variable.numpy().tolist() for variable in optimizer.variables]


def fit_with_overflow(strategy):
    """Return the loss scale and all weights after three steps, one of which overflows."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="mixed_float16")])
        optimizer = GlobalLossScale(FusedAdam(0.5, epsilon=1.0), initial_scale=64.0)
        model.compile(optimizer, "mse", jit_compile=False)
    x = np.random.default_rng(0).standard_normal((12, 3))
    x[7] = 2000.0  # the last row of the second batch: its loss is finite, its gradients are not
    dataset = tf.data.Dataset.from_tensor_slices((x, np.ones((12, 2)))).batch(4)
    history = model.fit(dataset, shuffle=False, verbose=0).history
    assert np.isfinite(history["loss"][0])
    scale = optimizer.dynamic_scale.numpy()
    return [scale.tolist(), *(variable.numpy().tolist() for variable in model.weights)]


def loss_of(strategy, labels):
    """Return the sum over replicas of the loss object called inside each replica."""
    logits = np.random.default_rng(0).standard_normal((4, 4, 13)).astype(np.float32)
    loss = SmoothedCrossentropy()
    parts = strategy.num_replicas_in_sync
    rows = 4 // parts

    def part(context):
        at = slice(context.replica_id_in_sync_group * rows, None)
        return labels[at][:rows], logits[at][:rows]

    labels_of = strategy.experimental_distribute_values_from_function(lambda c: part(c)[0])
    logits_of = strategy.experimental_distribute_values_from_function(lambda c: part(c)[1])
    step = tf.function(lambda: strategy.run(loss, args=(labels_of, logits_of)))
    return float(strategy.reduce(tf.distribute.ReduceOp.SUM, step(), axis=None))


def main():
    faulthandler.dump_traceback_later(280, exit=True)  # says where it is; 25 s alone on two cores
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategies = {
        "one": tf.distribute.OneDeviceStrategy("CPU:0"),
        "two": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    }
    report = {"replicas": strategies["two"].num_replicas_in_sync}
    for name, strategy in strategies.items():
        report[name] = {
            "fit": fit_once(strategy),
            "fused_adam": fit_with_fused_adam(strategy),
            "overflow": fit_with_overflow(strategy),
            "uneven": loss_of(strategy, LABELS),
            "one_token": loss_of(strategy, ONE_TOKEN),
            "no_token": loss_of(strategy, 0 * LABELS),
        }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
