"""Attention in a window and full attention by length: `python -m benchmarks window`.

8 heads of width 64, B = 1, no mask, float32, plain graph: milliseconds of full attention, and the
time of a window of 64 and of 256 keys on each side relative to it, measured in turn, medians of the
rounds' ratios. The last row of each table is the exponent p of time = c T^p, fitted to the medians
from T = 2048 on. Writes results/PROCESSOR/window.md.
"""

import math
import os
import statistics
import time

from benchmarks.harness.environments import SETTINGS
from benchmarks.harness.report import write_result

LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
WINDOWS = [64, 256]
FITTED_FROM = 2048


def functions(window):
    """Forward, and forward with backward."""
    import tensorflow as tf

    from tf_transformer import scaled_dot_product_attention

    def attend(q, k, v):
        return scaled_dot_product_attention(
            q, k, v, window=window, return_attention_weights=False, jit=False
        )[0]

    def both(q, k, v):
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            output = attend(q, k, v)
        return tape.gradient(output, (q, k, v))

    return [tf.function(function, autograph=False) for function in (attend, both)]


def seconds(function, arguments, repeats):
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(repeats):
        function(*arguments)
    return (time.perf_counter() - start) / repeats


def exponent(lengths, times):
    """p of the line log time = p log T + c with the least squares."""
    points = [
        (math.log(length), math.log(one))
        for length, one in zip(lengths, times, strict=True)
        if length >= FITTED_FROM
    ]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def table(variants, lengths, rounds):
    """Markdown for one function of full attention and of each window."""
    import tensorflow as tf

    lines = ["| T | full | " + " | ".join(f"window {window}" for window in WINDOWS) + " |"]
    lines.append("|---" * (2 + len(WINDOWS)) + "|")
    medians = []
    for length in lengths:
        q, k, v = (tf.random.stateless_normal((1, 8, length, 64), (0, seed)) for seed in (1, 2, 3))
        for function in variants:
            function(q, k, v)
        repeats = max(1, int(0.1 / seconds(variants[0], (q, k, v), 1)))
        times = [
            [seconds(function, (q, k, v), repeats) for function in variants] for _ in range(rounds)
        ]
        medians.append([statistics.median(column) for column in zip(*times, strict=True)])
        ratios = [[one / full for one in windows] for full, *windows in times]
        cells = [f"{1000 * medians[-1][0]:,.1f} ms"]
        cells += [f"{statistics.median(column):.3f}" for column in zip(*ratios, strict=True)]
        lines.append(f"| {length} | {' | '.join(cells)} |")
    if sum(length >= FITTED_FROM for length in lengths) > 1:
        exponents = [exponent(lengths, column) for column in zip(*medians, strict=True)]
        lines.append(f"| p | {' | '.join(f'{p:.2f}' for p in exponents)} |")
    return "\n".join(lines)


def main(parser, arguments):
    """Write the tables."""
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="largest T")
    options = parser.parse_args(arguments)
    os.environ.update({name: os.environ.get(name, SETTINGS[name]) for name in SETTINGS})
    lengths = [length for length in LENGTHS if length <= options.longest]
    variants = [functions(window) for window in (None, *WINDOWS)]
    parts = []
    titles = ("Forward", "Forward and backward")
    for title, several in zip(titles, zip(*variants, strict=True), strict=True):
        parts.append(f"## {title}\n\n{table(several, lengths, options.rounds)}")
    note = f"Time relative to full attention; p is fitted to T from {FITTED_FROM} on."
    write_result("window", "Attention in a window", parts, note)
