"""Training with several processes or devices, each with the whole model and a share of every batch.

Axes: B rows of the whole batch, W workers, R replicas of a worker.
"""

import contextlib
import contextvars
import hashlib
import itertools
import json
import os
import secrets
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer import __version__
from tf_transformer.data.batches import prefetched
from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.functional.labels import exact_labels, padding_label

__all__ = [
    "WorkerShare",
    "Workers",
    "current_workers",
    "lost_workers_named",
    "own_rows",
    "start_distribution",
    "together",
]

_GROUP = 1  # the key of the group of all workers
_LINGER = 2.0  # seconds; an operation may end before another worker has read its result
_APPEARS = 5.0  # seconds until a file from one machine is visible to the others
_PACKAGES = "tensorflow", "keras", "numpy"
KINDS = ("auto", "none", "mirrored", "workers", "tpu")
_current = None
_replicas_apart = contextvars.ContextVar("replicas apart", default=False)


class Workers:
    """The processes that train one model together, with TensorFlow's collective operations.

    Each process has the whole model and computes the gradients of its share of the batch, and all
    workers apply the mean of the gradients. So the optimizer, clipping, averages and checkpoints
    do not depend on the other workers. The cluster is from
    `tf.distribute.MultiWorkerMirroredStrategy`, without its distributed variables, which Keras
    3.15's `fit` cannot handle.

    Args:
        index: int, the number of this process; 0 is the chief, which writes the files.
        count: int, the number of processes.

    Example:
        >>> workers = Workers()
        >>> workers.is_chief, float(workers.mean([tf.constant(2.0)])[0])
        (True, 2.0)
    """

    def __init__(self, index=0, count=1):
        self.index, self.count = index, count
        self._keys = itertools.count(1)
        self._cluster = None  # lives as long as the collective operations
        # A graph, so that its operation keeps its key over all runs.
        self._count_true = tf.function(lambda own: self.sum([own])[0], autograph=False)

    @classmethod
    def start(cls):
        """Connect to the other processes, make them the current workers, and return them.

        Reads the environment variable TF_CONFIG: JSON with `cluster`, `{"worker": [addresses]}`,
        and `task`, `{"type": "worker", "index": number}`. Call it before TensorFlow computes
        anything; it returns when all processes are connected. Raises a ValueError if TF_CONFIG is
        missing or has another form.
        """
        global _current
        index, count = _task(os.environ.get("TF_CONFIG"))
        workers = cls(index, count)
        workers._cluster = tf.distribute.MultiWorkerMirroredStrategy()
        _current = workers
        return workers

    @property
    def is_chief(self):
        """Whether this process writes the files and shows the progress."""
        return self.index == 0

    def sum(self, tensors):
        """Sum a list of dense tensors of one dtype over all workers, bitwise the same on each.

        All must call it, in the same order.
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
        pairs = zip(parts, tensors, strict=True)
        return [tf.reshape(part, tf.shape(tensor)) for part, tensor in pairs]

    def mean(self, tensors):
        """Like `sum`, divided by the number of workers."""
        if self.count == 1:
            return tensors
        return [total / self.count for total in self.sum(tensors)]

    def any(self, value):
        """Return whether any worker passes a true value."""
        return bool(self._count_true(tf.constant(int(bool(value)))))

    def leave(self):
        """Wait for all workers, until they have fetched what they need from this one."""
        if self.count > 1:
            self.any(False)
            time.sleep(_LINGER)

    def gather(self, value):
        """Return the values of all workers, in their order, as a list; JSON must represent them.

        If a worker is lost, it raises a ConnectionError.
        """
        if self.count == 1:
            return [value]
        own = np.frombuffer(json.dumps(value).encode(), np.uint8).astype(np.int32)
        with lost_workers_named():
            sizes = np.zeros(self.count, np.int32)
            sizes[self.index] = len(own)
            [sizes] = self.sum([tf.constant(sizes)])
            rows = np.zeros((self.count, int(tf.reduce_max(sizes))), np.int32)
            rows[self.index, : len(own)] = own
            [rows] = self.sum([tf.constant(rows)])
        found = zip(rows.numpy().astype(np.uint8), sizes.numpy(), strict=True)
        return [json.loads(row[:size].tobytes()) for row, size in found]

    def agree(self, folder, **facts):
        """Check before training that all workers share one folder and have the same settings.

        Args:
            folder: str or Path, created for the files that the chief writes and all read; None if
                no worker reads the chief's files.
            facts: what must be equal on all workers, compared as JSON or `str`. The versions of
                this library and its dependencies must always be equal.

        Raises:
            ArgumentError: On every worker, with the same message, if one of them does not see the
                chief's folder, or its facts differ from the chief's.
            ConnectionError: If a worker is lost.
        """
        if self.count == 1:
            return
        facts["versions"] = [__version__, *(version(package) for package in _PACKAGES)]
        mark = None
        with together():
            if self.is_chief and folder is not None:
                # Machines may each have a folder of this name: only a file shows if it is shared.
                mark = Path(folder).absolute() / f"shared-{secrets.token_hex(8)}"
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
        hashes = {name: _hash(value) for name, value in facts.items()}
        try:
            (shown, expected), *_ = said = self.gather([mark and str(mark), hashes])
            seen = self.gather(folder is None or _appears(Path(folder) / Path(shown).name))
        finally:
            if mark is not None:
                mark.unlink(missing_ok=True)
        if not all(seen):
            self.leave()
            expected = f"one folder that all {self.count} workers share"
            got = f"the chief's {Path(shown).parent}, which worker {seen.index(False)} does not see"
            remedy = "Choose a folder of a file system that all machines share."
            raise ArgumentError("folder", expected, got, remedy)
        for index, (_, other) in enumerate(said):
            names = [name for name in expected if other.get(name) != expected[name]]
            if names:
                self.leave()
                expected = f"the same on all {self.count} workers"
                got = f"other values on worker {index} than on the chief"
                remedy = "Start all with the same command, files and packages."
                raise ArgumentError(", ".join(names), expected, got, remedy)

    def from_chief(self, arrays):
        """Return the chief's list of NumPy arrays; the others only provide shapes and dtypes."""
        if self.count == 1:
            return arrays
        found = []
        for array in map(np.asarray, arrays):
            sent = array if self.is_chief else np.zeros_like(array)
            # Collectives add integers of 32 and 64 bits, so any array is sent as bytes.
            bits = np.frombuffer(sent.tobytes(), np.uint8).astype(np.int32)
            [total] = self.sum([tf.constant(bits)])
            received = total.numpy().astype(np.uint8).tobytes()
            found.append(np.frombuffer(received, array.dtype).reshape(array.shape))
        return found


def current_workers():
    """Return the `Workers` that `Workers.start` connected, or only this process.

    Example:
        >>> current_workers().count
        1
    """
    return _current or Workers()


@contextlib.contextmanager
def lost_workers_named():
    """Report a lost worker as a ConnectionError; TensorFlow would report a failed operation.

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
        remedy = "Start all of them again; training with checkpoints resumes from the last one."
        lost = f"expected all {count} until the end, lost one ({type(error).__name__})"
        raise ConnectionError(f"workers: {lost}. {remedy}") from error


@contextlib.contextmanager
def together():
    """End all workers with the same message if one of them raises an error.

    Raises:
        ArgumentError, OSError: What another worker raised.
        RuntimeError: If that was any other exception.
        ConnectionError: If a worker is lost.

    Example:
        >>> with together():
        ...     text = "what may fail on one machine alone, such as reading a file"
    """
    workers, error = current_workers(), None
    try:
        yield
    except Exception as raised:
        error = raised
    own = None
    if error is not None:
        is_argument = isinstance(error, ArgumentError)
        kind = "argument" if is_argument else "system" if isinstance(error, OSError) else "bug"
        text = f"{type(error).__name__}: {error}" if kind == "bug" else str(error)
        own = [kind, *(part and str(part) for part in (error.args if is_argument else [text]))]
    said = [(index, other) for index, other in enumerate(workers.gather(own)) if other]
    if not said:
        return
    workers.leave()
    if error is not None:
        raise error
    index, (kind, *parts) = said[0]
    if kind == "argument":
        raise ArgumentError(*parts)
    raise OSError(*parts) if kind == "system" else RuntimeError(f"worker {index}: {parts[0]}")


def _appears(path):
    """Whether a file exists or appears soon: a network file system may show it late."""
    end = time.monotonic() + _APPEARS
    while not os.path.exists(path):  # `path.exists` raises an error without permission
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
        # Listing a folder makes a network file system look for new files.
        for parent in list(path.parents)[:2]:
            with contextlib.suppress(OSError):
                os.listdir(parent)
    return True


def _hash(value):
    found = hashlib.sha256()
    for part in value if isinstance(value, list) else [value]:  # texts may fill the memory once
        found.update(json.dumps(part, sort_keys=True, default=str).encode() + b"\n")
    return found.hexdigest()


def _task(text):
    """The number of this process and how many there are, from TF_CONFIG."""
    form = (
        'JSON like {"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    check(text, "TF_CONFIG", form, "none", "Set it for each process.")
    try:
        config = json.loads(text)
        workers, task = config["cluster"]["worker"], config["task"]
        kinds, index = set(config["cluster"]), task["index"]
        if task["type"] != "worker" or kinds != {"worker"} or index not in range(len(workers)):
            raise ValueError("another task")
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError("TF_CONFIG", form, f"{text!r} ({error})") from error
    return index, len(workers)


def start_distribution(kind="auto"):
    """Connect what trains together; return the context manager to create and train a model in.

    Call it before TensorFlow computes anything. Raises a ValueError if the kind is unknown,
    TF_CONFIG has another form, or there is no TPU.

    Args:
        kind: "none"; "mirrored", all GPUs of this machine (`tf.distribute.MirroredStrategy`);
            "workers", the processes that TF_CONFIG names, see `Workers`; "tpu", the TPU that
            `TPUClusterResolver` finds; or "auto": workers if TF_CONFIG names several, mirrored if
            there are several GPUs, otherwise none.

    Example:
        >>> with start_distribution("none"):
        ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    """
    check_choice("distribute", kind, KINDS)
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
            remedy = "Name it in the environment variable TPU_NAME, or use auto or none."
            got = f"none ({error})"
            raise ArgumentError("distribute", "a TPU that TensorFlow finds", got, remedy) from error
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver).scope()
    return contextlib.nullcontext()


def _automatic():
    with contextlib.suppress(ValueError, KeyError, TypeError):  # `Workers.start` raises the error
        if len(json.loads(os.environ.get("TF_CONFIG", ""))["cluster"]["worker"]) > 1:
            return "workers"
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "none"


class WorkerShare:
    """This worker's share of batches, see `own_rows`.

    Args:
        batches: object with `steps_per_epoch` and `dataset(first_epoch, first_step, epochs)`, such
            as `BucketedBatches`.

    Example:
        >>> from tf_transformer.data import BucketedBatches
        >>> sizes = {"lengths": (4,), "tokens_per_batch": 4}
        >>> batches = BucketedBatches([[5]], [[7]], start_id=1, end_id=2, **sizes)
        >>> WorkerShare(batches).steps_per_epoch
        1
    """

    def __init__(self, batches):
        self._batches = batches

    @property
    def steps_per_epoch(self):
        """Number of batches in an epoch."""
        return self._batches.steps_per_epoch

    def dataset(self, first_epoch=0, first_step=0, epochs=None):
        """Return the shares as a `tf.data.Dataset`; see `Buckets` for the arguments."""
        return own_rows(self._batches.dataset(first_epoch, first_step, epochs))


def own_rows(dataset, workers=None, replicas=None):
    """Every W-th row of each batch, with a row of padding if another worker has one more.

    Together the workers have every row once, the same number of steps and equal shapes. Rows of
    padding also make the share divisible by the replicas of a strategy, which Keras needs. Losses
    and metrics of this library leave out their labels. Returns a `tf.data.Dataset` of the same
    structure, with R ceil(B / W / R) rows.

    Args:
        dataset: `tf.data.Dataset` of `(x, y)`, `(x, y, sample_weight)` or only x, as for `fit`.
        workers: None for the current ones, or `Workers`.
        replicas: None for the number in the current strategy, or int.

    Example:
        >>> from tf_transformer.distribution import Workers
        >>> dataset = tf.data.Dataset.from_tensors([[5], [6], [7]])
        >>> [batch.numpy().tolist() for batch in own_rows(dataset, Workers(index=1, count=2))]
        [[[6], [0]]]
    """
    workers = workers or current_workers()
    replicas = replicas or tf.distribute.get_strategy().num_replicas_in_sync
    parts = workers.count * replicas
    if parts == 1:
        return dataset

    def share(x, *rest):  # `map` passes the parts of a tuple one by one
        parts_of_batch = [pad_rows(x, parts)]
        if rest:
            y, *weights = rest
            parts_of_batch += [pad_labels(y, parts), *(pad_rows(w, parts) for w in weights)]
        own = tf.nest.map_structure(lambda t: t[workers.index :: workers.count], parts_of_batch)
        return tuple(own) if rest else own[0]

    return prefetched(dataset.map(share))


def pad_rows(tensors, multiple):
    """Add rows of 0 until the number of rows is a multiple of `multiple`."""
    return tf.nest.map_structure(lambda tensor: _padded(tensor, multiple, 0), tensors)


def pad_labels(labels, multiple):
    """Add rows of labels that count in no task, see `read_labels`."""

    def padded(tensor):
        tensor = tensor if tensor.dtype.is_floating else exact_labels(tensor)
        return _padded(tensor, multiple, padding_label(tensor.dtype))

    return tf.nest.map_structure(padded, labels)


def _padded(tensor, multiple, value):
    if isinstance(tensor, tf.RaggedTensor):  # empty rows
        missing = -tensor.nrows() % multiple
        ends = tf.repeat(tensor.row_splits[-1:], missing)
        return tensor.from_row_splits(tensor.values, tf.concat([tensor.row_splits, ends], 0))
    missing = -tf.shape(tensor)[0] % multiple
    sides = [(0, missing)] + [(0, 0)] * (tensor.shape.rank - 1)
    return tf.pad(tensor, sides, constant_values=value)


@contextlib.contextmanager
def apart():
    """Within this context, a replica's means are over its own labels: loops cannot communicate."""
    token = _replicas_apart.set(True)
    try:
        yield
    finally:
        _replicas_apart.reset(token)


def real_share(real):
    """The factor that turns the sum over a share of a batch into a mean over all of its labels."""
    count, context = tf.reduce_sum(real), tf.distribute.get_replica_context()
    parts = 1 if _replicas_apart.get() else tf.distribute.get_strategy().num_replicas_in_sync
    if parts > 1 and context is not None:
        count = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    workers = current_workers()
    [count] = workers.sum([count])
    return tf.math.divide_no_nan(float(parts * workers.count), count)


def with_global_value(values):
    """Return values whose mean has this worker's gradient and the value over all workers."""
    workers = current_workers()
    if workers.count == 1:
        return values
    [mean] = workers.mean([tf.reduce_mean(values)])
    return tf.stop_gradient(mean) + (values - tf.stop_gradient(values))


def global_mean(values, real):
    """The mean over the real labels of all replicas and workers, as part of a model's loss."""
    mean = with_global_value(tf.reduce_sum(values) * real_share(real))
    return mean / tf.distribute.get_strategy().num_replicas_in_sync
