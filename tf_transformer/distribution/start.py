"""Which devices and processes train together."""

import contextlib
import json
import os

import tensorflow as tf

from tf_transformer.distribution.workers import Workers
from tf_transformer.errors import ArgumentError

KINDS = ("auto", "none", "mirrored", "workers", "tpu")


def start_distribution(kind="auto"):
    """Connect the devices and processes that train together; before TensorFlow computes anything.

    Args:
        kind: "none"; "mirrored", all GPUs of this machine (`tf.distribute.MirroredStrategy`);
            "workers", the processes that TF_CONFIG names, see `Workers`; "tpu", the TPU that
            `TPUClusterResolver` finds; or "auto": workers if TF_CONFIG names several, or else
            mirrored if there are several GPUs, or else none.

    Returns:
        Context manager in which the model is created and trained.

    Raises:
        ValueError: If the kind is unknown, TF_CONFIG has another form, or there is no TPU.

    Example:
        >>> with start_distribution("none"):
        ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    """
    if kind not in KINDS:
        raise ArgumentError("distribute", f"one of {', '.join(KINDS)}", f"{kind!r}")
    if kind == "auto":
        kind = _automatic()
    if kind == "workers":
        Workers.start()
    elif kind == "mirrored":
        return tf.distribute.MirroredStrategy().scope()
    elif kind == "tpu":
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        except ValueError as error:
            raise ArgumentError(
                "distribute",
                "a TPU that TensorFlow finds",
                f"none ({error})",
                "Name it in the environment variable TPU_NAME, or use auto or none.",
            ) from error
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver).scope()
    return contextlib.nullcontext()


def _automatic():
    with contextlib.suppress(ValueError, KeyError, TypeError):  # `Workers.start` would complain
        if len(json.loads(os.environ.get("TF_CONFIG", ""))["cluster"]["worker"]) > 1:
            return "workers"
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "none"
