"""The processes that train one model together."""

import contextlib
import itertools
import json
import os
import time

import numpy as np
import tensorflow as tf

_GROUP = 1  # the key of the group of all workers
_LINGER = 2.0  # seconds; an operation may end here before another worker has read its result
_current = None


class Workers:
    """The processes that train one model together, with TensorFlow's collective operations.

    Each process has the whole model and computes the gradients of its share of the batch; their
    mean over all workers is what each of them applies. So the optimizer, clipping, averages and
    checkpoints need not know of the others. The cluster is that of
    `tf.distribute.MultiWorkerMirroredStrategy`; its distributed variables are not used, because
    Keras 3.15's `fit` cannot handle them there.

    Args:
        index: int, the number of this process; 0 is the chief, which writes the files.
        count: int, how many there are.

    Example:
        >>> workers = Workers()
        >>> workers.is_chief, float(workers.mean([tf.constant(2.0)])[0])
        (True, 2.0)
    """

    def __init__(self, index=0, count=1):
        self.index = index
        self.count = count
        self._keys = itertools.count(1)
        self._cluster = None  # lives as long as the collective operations
        # A graph, so that its operation keeps its key however often it runs.
        self._count_true = tf.function(lambda own: self.sum([own])[0], autograph=False)

    @classmethod
    def start(cls):
        """Connect to the other processes and make them the current workers.

        Reads the environment variable TF_CONFIG: JSON with `cluster`, `{"worker": [addresses]}`,
        and `task`, `{"type": "worker", "index": number}`. It must come before TensorFlow computes
        anything, and returns when all processes are there.

        Returns:
            `Workers`.

        Raises:
            ValueError: If TF_CONFIG is missing or has another form.
        """
        global _current
        index, count = _task(os.environ.get("TF_CONFIG"))
        workers = cls(index, count)
        workers._cluster = tf.distribute.MultiWorkerMirroredStrategy()
        _current = workers
        return workers

    @property
    def is_chief(self):
        """Whether this process writes the files and the progress."""
        return self.index == 0

    def sum(self, tensors):
        """Add up what all workers pass; all must call it, in the same order.

        Args:
            tensors: list of dense tensors of one dtype.

        Returns:
            list of tensors, the same on every worker, to the last bit.
        """
        if self.count == 1:
            return tensors
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        total = tf.raw_ops.CollectiveReduceV2(
            input=flat,
            group_size=self.count,
            group_key=_GROUP,
            instance_key=next(self._keys),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            communication_hint="auto",
        )
        parts = tf.split(total, [tf.size(tensor) for tensor in tensors], num=len(tensors))
        return [
            tf.reshape(part, tf.shape(tensor)) for part, tensor in zip(parts, tensors, strict=True)
        ]

    def mean(self, tensors):
        """Like `sum`, divided by the number of workers."""
        if self.count == 1:
            return tensors
        return [total / self.count for total in self.sum(tensors)]

    def any(self, value):
        """Whether any worker passes a true value.

        Args:
            value: bool.

        Returns:
            bool, the same on every worker.
        """
        return bool(self._count_true(tf.constant(int(bool(value)))))

    def leave(self):
        """Wait for all workers, and until they have fetched what they need from this one."""
        if self.count > 1:
            self.any(False)
            time.sleep(_LINGER)

    def from_chief(self, arrays):
        """Pass NumPy arrays from the chief to all workers.

        Args:
            arrays: list of arrays; those of other workers matter for shapes and dtypes alone.

        Returns:
            list of arrays.
        """
        if self.count == 1:
            return arrays
        found = []
        for array in arrays:
            array = np.asarray(array)
            sent = array if self.is_chief else np.zeros_like(array)
            # Collectives add integers of 32 and 64 bits: the bits of anything fit into bytes.
            bits = np.frombuffer(sent.tobytes(), np.uint8).astype(np.int32)
            [total] = self.sum([tf.constant(bits)])
            found.append(
                np.frombuffer(total.numpy().astype(np.uint8).tobytes(), array.dtype).reshape(
                    array.shape
                )
            )
        return found


def current_workers():
    """The workers of this process: those that `Workers.start` connected, or this process alone.

    Returns:
        `Workers`.

    Example:
        >>> current_workers().count
        1
    """
    return _current or Workers()


@contextlib.contextmanager
def lost_workers_named():
    """Say that a worker is lost where TensorFlow would report a failed operation.

    Raises:
        ConnectionError: If an operation fails and there are several workers.

    Example:
        >>> with lost_workers_named():
        ...     total = current_workers().sum([tf.constant(1.0)])
    """
    try:
        yield
    except tf.errors.OpError as error:
        count = current_workers().count
        if count == 1:
            raise
        raise ConnectionError(
            f"workers: expected all {count} until the end, lost one ({type(error).__name__}). "
            f"Start all of them again; training with checkpoints resumes from the last one."
        ) from error


def _task(text):
    """The number of this process and how many there are, from TF_CONFIG."""
    form = (
        'TF_CONFIG: expected JSON like {"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    if not text:
        raise ValueError(f"{form}, got none. Set it for each process.")
    try:
        config = json.loads(text)
        workers, task = config["cluster"]["worker"], config["task"]
        kinds, index = set(config["cluster"]), task["index"]
        if task["type"] != "worker" or kinds != {"worker"} or index not in range(len(workers)):
            raise ValueError("another task")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{form}, got {text!r} ({error}).") from error
    return index, len(workers)
