"""One peer, kept alive: `python -m benchmarks.harness.worker MODULE`.

Loads `benchmarks.MODULE`, whose `variants(case, arrays)` returns functions by name. One call of a
function does the work once, waits for it, and returns its results or yields them; an order may ask
for the seconds of each yielded result. Reads orders from standard input and answers on standard
output, both in JSON, one per line.
"""

import gc
import importlib
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np


def memory(field):
    """A line of /proc/self/status, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


def reset_peak():
    """Reset VmHWM, the peak memory of the process."""
    Path("/proc/self/clear_refs").write_text("5")


def first_call(function):
    """The results, the seconds of the call, and its peak memory beyond what the process held.

    The first call also traces or compiles. A later call would find the memory that the library
    kept from the first one, and would seem to need none.
    """
    gc.collect()
    reset_peak()
    before = memory("VmRSS")
    start = time.perf_counter()
    results = list(function())
    seconds = time.perf_counter() - start
    return results, {"peak_mib": memory("VmHWM") - before, "first_seconds": seconds}


def laps(function):
    """Return the seconds that each result of a generator took."""
    times = [time.perf_counter()]
    for _ in function():
        times.append(time.perf_counter())
    return np.diff(times).tolist()


def timed(function, repeats, details=False):
    """Seconds of a call; with `details` also the process's peak memory and the call's results."""
    start = time.perf_counter()
    for _ in range(repeats):
        results = None  # freed before the next call, which would otherwise need more memory
        results = function()
    seconds = (time.perf_counter() - start) / repeats
    if not details:
        return seconds
    values = [float(result) for result in results]
    return {"seconds": seconds, "process_mib": memory("VmHWM"), "values": values}


def main(module, answers):
    """Serve until standard input ends."""
    module = importlib.import_module(f"benchmarks.{module}")
    functions = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "case" in order:
            functions.clear()
            gc.collect()
            with np.load(order["inputs"]) as inputs:
                functions.update(module.variants(order["case"], dict(inputs)))
            answer = {}
            for name, function in functions.items():
                results, answer[name] = first_call(function)
                np.savez(f"{order['outputs']}/{name}.npz", *[np.asarray(r) for r in results])
                del results
        elif order.get("laps"):
            answer = laps(functions[order["name"]])
        else:
            function = functions[order["name"]]
            answer = timed(function, order["repeats"], order.get("details", False))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # A library's own output goes to standard error, so that it cannot mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1], answers)
