"""Memory and time of gradient accumulation: `python -m benchmarks accumulate`.

A step of the paper's parts in the small preset's size on one large batch, computed in 1, 2, 4 and 8
parts, each in a process of its own, in turn. Writes peak memory and time, compared with one part in
the same round, to results/PROCESSOR/accumulate.md.
"""

import json
import statistics
import subprocess
import sys
import time

from benchmarks.harness.report import spread, write_result
from benchmarks.harness.worker import memory, reset_peak
from benchmarks.training.variant_speed import training

PARTS = (1, 2, 4, 8)


def main(parser, arguments):
    """Measure all numbers of parts in turn, write the table."""
    parser.add_argument("--rounds", type=int, default=5, help="all numbers of parts in turn")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a process")
    parser.add_argument("--batch", type=int, default=1024, help="pairs in a batch")
    parser.add_argument("--length", type=int, default=16, help="tokens of each side")
    options = parser.parse_args(arguments)
    found = {parts: [] for parts in PARTS}
    for number in range(options.rounds):
        for parts in PARTS:
            order = map(str, (parts, options.steps, options.batch, options.length))
            call = [sys.executable, "-m", "benchmarks.training.accumulate", *order]
            done = subprocess.run(call, stdout=subprocess.PIPE, check=True)
            found[parts].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}: {parts} parts: {found[parts][-1]}", flush=True)
    lines = [
        "| parts | MiB for a step | milliseconds | time / time of one part |",
        "|---|---|---|---|",
    ]
    for parts, results in found.items():
        pairs = zip(results, found[1], strict=True)
        ratios = [own["seconds"] / one["seconds"] for own, one in pairs]
        mib, ms = (
            statistics.median(result[name] for result in results) for name in ("mib", "seconds")
        )
        lines.append(f"| {parts} | {mib:,.0f} | {1000 * ms:,.0f} | {spread(ratios)} |")
    remark = (
        f"{options.batch:,} pairs of {options.length} tokens each. Memory: the most that the "
        f"process held, beyond what it held before the first step."
    )
    write_result("accumulate", "Gradient accumulation", [remark, "\n".join(lines)], "")


def one_process(parts, steps, batch, length):
    """Print a line of JSON."""
    step = training({}, {}, batch, length, parts)
    reset_peak()
    before = memory("VmRSS")
    times = []
    for number in range(steps + 2):
        start = time.perf_counter()
        float(step()["loss"])
        if number >= 2:  # the first ones trace and allocate
            times.append(time.perf_counter() - start)
    print(json.dumps({"mib": memory("VmHWM") - before, "seconds": statistics.median(times)}))


if __name__ == "__main__":
    one_process(*map(int, sys.argv[1:]))
