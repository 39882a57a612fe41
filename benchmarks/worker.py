"""One peer, kept alive: reads orders from standard input, answers on standard output, in JSON.

`worker.py MODULE` loads `peers.MODULE`, whose `variants(case, arrays)` gives functions by name; one
call of a function does the work once, waits for it, and returns its results, or yields them: then
an order may ask for the seconds of each.
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


def first_call(function):
    """The results, and what the call took: seconds, and MiB beyond what the process held before.

    The first call traces or compiles too. A later one would find the memory that the library kept
    from the first, and look as if it needed none.
    """
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = memory("VmRSS")
    start = time.perf_counter()
    results = list(function())
    seconds = time.perf_counter() - start
    return results, {"peak_mib": memory("VmHWM") - before, "first_seconds": seconds}


def laps(function):
    """The seconds that each result of a generator took."""
    times = [time.perf_counter()]
    for _ in function():
        times.append(time.perf_counter())
    return np.diff(times).tolist()


def main(module, answers):
    """Serve until standard input ends."""
    module = importlib.import_module(f"peers.{module}")
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
            start = time.perf_counter()
            for _ in range(order["repeats"]):
                function()
            answer = (time.perf_counter() - start) / order["repeats"]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # Whatever a library prints goes to standard error; the answers keep their own line.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1], answers)
