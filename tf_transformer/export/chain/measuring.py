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
    """The bytes of all files that a stage exported."""
    return sum(file.stat().st_size for file in _exported(stage).rglob("*") if file.is_file())


def seconds_of(calls, texts, rows, *, most=64, rounds=9):
    """Time functions in turn."""
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
    """The median of the ratios of two lists of times, measured in turn."""
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


def peak_memory(stage, method, texts):
    """The peak memory of a process of its own that loads an export and runs it once."""
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
