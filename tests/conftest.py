"""What every test starts from: a quiet TensorFlow, few threads, a fresh Keras state, one seed."""

import gc
import os
import sys

import pytest

# Tracing allocates so much that the default of 700 would search for garbage thousands of times.
gc.set_threshold(50_000, 20, 50)

# Before anything imports TensorFlow, and inherited by the processes that tests start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_THREADS = str(max(1, min(4, os.cpu_count() or 1) // _PROCESSES))
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", _THREADS)
os.environ.setdefault("TF_NUM_INTEROP_THREADS", _THREADS)


def pytest_addoption(parser):
    parser.addoption(
        "--whole", action="store_true", help="every sentence of the corpora, not one of four"
    )


@pytest.fixture(autouse=True)
def fresh_keras():
    """Layer names count from zero and every random draw is the same, whatever ran before."""
    keras = sys.modules.get("keras")
    if keras is not None:  # a test without Keras need not wait for its import
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(20170612)
