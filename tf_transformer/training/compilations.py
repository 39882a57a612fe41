"""Counting the programs that TensorFlow compiles."""

import contextlib
import dataclasses
import re
import tempfile
from pathlib import Path

import tensorflow as tf

_TRACE = "tf.function-graph_building"
_XLA = re.compile(r"[CG]puCompiler::RunBackend")  # generates machine code


@dataclasses.dataclass
class Compilations:
    """The counts of a `count_compilations` block."""

    traces: int = 0
    xla: int = 0


@contextlib.contextmanager
def count_compilations():
    """Count the graphs that are traced and the programs that XLA compiles in a `with` block.

    TensorFlow's profiler, whose records are kept in memory until the block ends, counts those of
    layers, `fit` and SavedModels alike: use it for a few steps, not a whole training. Raises a
    RuntimeError if another profiler is already running, such as TensorBoard's.

    Yields:
        `Compilations` with the ints `traces` and `xla`, filled in when the block ends.

    Example:
        >>> double = tf.function(lambda x: x + x, jit_compile=True)
        >>> with count_compilations() as built:
        ...     for length in (2, 3, 2):
        ...         _ = double(tf.ones((length,)))
        >>> built
        Compilations(traces=2, xla=2)
    """
    built = Compilations()
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=1, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.profiler.experimental.start(folder, options)
        except tf.errors.AlreadyExistsError as error:
            message = "count_compilations: another profiler is running; stop it first "
            message += "(TensorBoard's profile_batch, or another count_compilations block)."
            raise RuntimeError(message) from error
        try:
            yield built
        finally:
            tf.profiler.experimental.stop()
            for name in _events(folder):
                built.traces += name == _TRACE
                built.xla += bool(_XLA.fullmatch(name))


def _events(folder):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for path in Path(folder).rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events:
                    yield plane.event_metadata[event.metadata_id].name
