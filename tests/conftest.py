"""Setup of all tests: a quiet TensorFlow, few threads, fresh Keras state, a fixed seed."""

import gc
import os
import sys
import zlib

import pytest

# Tracing allocates so many objects that the default of 700 would trigger thousands of passes.
gc.set_threshold(50_000, 20, 50)

# Set before TensorFlow is imported; child processes inherit these.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_THREADS = str(max(1, min(4, os.cpu_count() or 1) // _PROCESSES))
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", _THREADS)
os.environ.setdefault("TF_NUM_INTEROP_THREADS", _THREADS)


def pytest_addoption(parser):
    parser.addoption(
        "--whole",
        action="store_true",
        help="every sentence of the corpora, not one of four, and every case of `one_of` tests",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out cases of tests that are marked `one_of(n)`: about one of n stays, at least one."""
    if config.getoption("whole"):
        return
    kept, left_out, tests = [], [], set()
    for item in items:
        marker, test = item.get_closest_marker("one_of"), item.nodeid.partition("[")[0]
        # By a hash: every n-th case could always have the same value of one of its parameters.
        chosen = marker is None or zlib.crc32(item.nodeid.encode()) % marker.args[0] == 0
        if chosen or test not in tests:
            kept.append(item)
            tests.add(test)
        else:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.fixture(autouse=True)
def fresh_keras():
    """Reset layer names and random seeds, so that no test depends on earlier ones."""
    keras = sys.modules.get("keras")
    if keras is not None:  # do not import Keras for tests that do not use it
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(20170612)
