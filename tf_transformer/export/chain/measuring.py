"""What a served model costs: bytes, time, memory."""

import json
import statistics
import subprocess
import sys
import time

from tf_transformer.export.chain.served import LITE, SAVED, in_batches

_MEMORY = """
import json, sys
folder, method, texts = json.load(sys.stdin)
{run}
try:
    lines = open("/proc/self/status").read().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
except OSError:
    print("unknown")
"""
_SAVED = """
import tensorflow as tf
model = tf.saved_model.load(folder)
getattr(model, method)(tf.constant(texts))
"""
_LITE = """
from tf_transformer import litert
getattr(litert.load(folder), method)(texts)
"""


def size_of(stage):
    """The bytes of all files that a stage exported.

    Args:
        stage: Path of a folder with `saved_model` or `litert` in it.

    Returns:
        int.

    Example:
        >>> from pathlib import Path
        >>> Path("stage/litert").mkdir(parents=True)
        >>> _ = Path("stage/litert/model.tflite").write_bytes(b"12345")
        >>> size_of(Path("stage"))
        5
    """
    return sum(file.stat().st_size for file in _exported(stage).rglob("*") if file.is_file())


def seconds_of(calls, texts, rows, *, most=64, rounds=9):
    """Time functions in turn.

    Args:
        calls: dict, name -> function of a list of texts.
        texts: list of str; the first ones are used.
        rows: int, texts of a call.
        most: int, texts of a round.
        rounds: int; two more come first and are not counted.

    Returns:
        dict, name -> list with the seconds of a call in each round.

    Example:
        >>> seconds = seconds_of({"upper": lambda texts: list(map(str.upper, texts))}, ["a"], 1)
        >>> len(seconds["upper"])
        9
    """
    texts = texts[:most]
    seconds = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            in_batches(call, texts, rows)
            if turn > 1:
                seconds[name].append((time.perf_counter() - start) / -(-len(texts) // rows))
    return seconds


def relative(seconds, base):
    """The median of the ratios of two lists of times, measured in turn.

    Args:
        seconds, base: lists of float of the same length.

    Returns:
        float.

    Example:
        >>> relative([1.0, 2.0, 9.0], [2.0, 4.0, 6.0])
        0.5
    """
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


def peak_memory(stage, method, texts):
    """The peak memory of a process of its own that loads an export and runs it once.

    Args:
        stage: Path of a folder with `saved_model` or `litert` in it.
        method: "classify" or "translate".
        texts: list of str.

    Returns:
        int, bytes; None where the system does not tell.

    Raises:
        RuntimeError: If the process fails.

    Example:
        >>> from pathlib import Path
        >>> peak_memory(Path("nowhere"), "classify", ["a"])
        Traceback (most recent call last):
        RuntimeError: nowhere: expected a model that runs in a process of its own, got ...
    """
    program = _MEMORY.format(run=_LITE if (stage / LITE).is_dir() else _SAVED)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([str(_exported(stage).resolve()), method, texts]),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"{stage}: expected a model that runs in a process of its own, got "
            f"{done.stderr.strip().splitlines()[-1]}"
        )
    answer = done.stdout.split()[-1]
    return None if answer == "unknown" else 1024 * int(answer)


def _exported(stage):
    return stage / (LITE if (stage / LITE).is_dir() else SAVED)
