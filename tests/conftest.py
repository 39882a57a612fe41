"""Setup of all tests: a quiet TensorFlow, few threads, fresh Keras state, a fixed seed."""

import datetime
import gc
import math
import os
import sys
import zlib
from pathlib import Path
from unittest import mock

import memory
import numpy as np
import pytest

# Tracing allocates so many objects that the default of 700 would trigger thousands of passes.
gc.set_threshold(50_000, 20, 50)

# Set before TensorFlow is imported; child processes inherit these.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_THREADS = str(max(1, min(4, os.cpu_count() or 1) // _PROCESSES))
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", _THREADS)
os.environ.setdefault("TF_NUM_INTEROP_THREADS", _THREADS)

_TABLE = (Path(__file__).parent / "planted_faults.txt").read_text("utf-8")
_GUARDS = {f"tests/{line[2:]}" for line in _TABLE.splitlines() if line.startswith("! ")}
_generator_states = {}  # by id: of random numbers that a module of tests keeps


def pytest_addoption(parser):
    parser.addoption(
        "--whole",
        action="store_true",
        help="every sentence of the corpora, not one of four, and every case of `one_of` tests",
    )
    parser.addoption(
        "--draw",
        default=str(datetime.date.today()),
        metavar="DATE",
        help="the day whose share of the `one_of` and `slow` tests runs (default: today)",
    )


def pytest_terminal_summary(terminalreporter, config):
    share = "all" if config.getoption("whole") else f"those of --draw {config.getoption('draw')}"
    terminalreporter.write_line(f"one_of and slow tests: {share}")


def pytest_collection_modifyitems(config, items):
    """Skip tests marked `whole`, and all but one of n cases of tests marked `one_of(n)`.

    `one_of(n, group)` keeps one of n files with the same group, and those that the command names.
    Of the tests marked `slow`, one of sixty is kept. They take turns by the date: each runs once
    in n days, and equal parameters of several tests mostly on the same day, so that a fixture can
    leave out the others. The tests that notice a planted fault always run.
    """
    # Trainings take longest; first, so that at the end no process has to wait for another's.
    items.sort(key=lambda item: "training" not in item.path.parts)
    if config.getoption("whole") or len(items) == 1:
        return
    named = {Path(argument.partition("::")[0]).absolute() for argument in config.args}
    drawn_from = {}  # (what is drawn, one of how many, turn): its cases
    left_out = {item for item in items if item.get_closest_marker("whole")}
    for item in items:
        if item in left_out:
            continue  # takes no turn: on its day nothing would run
        test = item.nodeid.partition("[")[0]
        turn = datetime.date.fromisoformat(config.getoption("draw")).toordinal()
        marks = [mark.args for mark in item.iter_markers("one_of")]
        draws = [mark for mark in marks if len(mark) == 2 and item.path not in named]
        if item.get_closest_marker("slow"):  # no matter when the group of its file runs
            draws = [(60, "slow")]
        if own := [n for n, *group in marks if not group]:
            # One draw for all: draws from different cases may never keep the same one.
            draws.append((math.lcm(*own), None))
        for n, group in draws:
            case = item.nodeid if group is None else test if group == "slow" else item.path.name
            cases = drawn_from.setdefault((group or test, n, turn), {})
            cases.setdefault(case, []).append(item)
            if group:  # its cases take turns on the days when the group is drawn
                turn //= n
    for (_, n, turn), cases in drawn_from.items():
        # In n parts by a hash, so that equal parameters of tests with other cases share a part.
        order = sorted(
            cases, key=lambda case: zlib.crc32((case.partition("[")[2] or case).encode())
        )
        n = min(n, len(order))
        parts = ((i * n // len(order), case) for i, case in enumerate(order))
        left_out.update(item for part, case in parts if (part + turn) % n for item in cases[case])
    left_out = {item for item in left_out if item.nodeid not in _GUARDS}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_teardown(item, nextitem):
    if nextitem is not None and nextitem.path == item.path:
        memory.free_if_grown()  # a fixture of this file may still need a custom gradient
        return
    if keras := sys.modules.get("keras"):
        keras.utils.clear_session(free_memory=False)
    memory.free_if_grown(memory.custom_gradients())


@pytest.hookimpl(tryfirst=True)  # before the fixtures, which may build models
def pytest_runtest_setup(item):
    """Reset layer names and random numbers, so that no test depends on which ran before it."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:  # the default of a GPU, too coarse for the tolerances
        tensorflow.config.experimental.enable_tensor_float_32_execution(False)
    keras = sys.modules.get("keras")
    if keras is not None:  # do not import Keras for tests that do not use it
        # Not the kernels: TensorFlow would optimize the functions of a file's fixtures again.
        with mock.patch("tensorflow.python.eager.context.pywrap_tfe.TFE_ContextClearCaches"):
            keras.utils.clear_session(free_memory=False)
            keras.utils.set_random_seed(20170612)
    for value in vars(item.module).values():
        if isinstance(value, np.random.Generator):
            state = _generator_states.setdefault(id(value), value.bit_generator.state)
            value.bit_generator.state = state
