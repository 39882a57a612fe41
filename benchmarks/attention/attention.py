"""The attention core compared with its peers: `python -m benchmarks attention`.

12 heads of width 64, no mask, forward and forward with backward; with and without the causal flag;
growth with the length. Writes results/PROCESSOR/attention-DTYPE.md, .json and .svg. The plot needs
matplotlib: `pip install -e ".[bench]"`.
"""

import statistics

import numpy as np

from benchmarks.harness.arena import contest
from benchmarks.harness.report import (
    MEDIANS,
    ratios,
    speeds_folder,
    times,
    write_json,
    write_result,
)

OWN = "tf_transformer"
PEERS = [
    ("tf_transformer", "attention.peers.ours"),
    ("tf_transformer", "attention.peers.plain_tensorflow"),
    ("tf_transformer", "attention.peers.keras_ops"),
    ("torch", "attention.peers.torch_core"),
    ("tf_transformer", "attention.peers.by_xla"),
    ("jax", "attention.peers.jax_core"),
    ("onnxruntime", "attention.peers.onnx_core"),
]
FLAG = [("tf_transformer", "attention.peers.ours_causal")]  # with and without
SHAPES = [(32, 128), (8, 512), (1, 2048), (1, 8192)]
GROWTH = [1024, 2048, 4096, 8192, 16384]


def inputs(batch, length):
    """q, k, v and the gradient of the output, (B, 12, T, 64)."""
    rng = np.random.default_rng(0)
    shape = (batch, 12, length, 64)
    return {name: rng.standard_normal(shape, np.float32) for name in ("q", "k", "v", "g")}


def growth_part(lengths, growth):
    """Markdown: time and memory of this library by length."""
    lines = ["| T | forward | forward and backward |", "|---|---|---|"]
    for length, *points in zip(lengths, *growth.values(), strict=True):
        cells = [f"{1000 * seconds:,.0f} ms, {mib:,.0f} MiB" for seconds, mib in points]
        lines.append(f"| {length} | {' | '.join(cells)} |")
    text = "Time, and the memory that one call needs beyond what the process held before it.\n\n"
    return f"## Growth of {OWN} with the length, B = 1\n\n{text}" + "\n".join(lines)


def plot(lengths, growth, path):
    """Draw memory and time by length on logarithmic axes."""
    import matplotlib.pyplot as plt  # not needed for --help

    _, (memory, time) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    labels = "forward", "forward and backward"
    for points, label in zip(growth.values(), labels, strict=True):
        seconds, mib = zip(*points, strict=True)
        memory.plot(lengths, mib, "o-", label=label)
        time.plot(lengths, seconds, "o-", label=label)
    scores = [12 * t * t * 4 / 2**20 for t in lengths]
    memory.plot(lengths, scores, "--", color="gray", label="all scores, once")
    memory.set_ylabel("MiB beyond the inputs")
    time.set_ylabel("seconds")
    for axes in (memory, time):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("length T (12 heads of width 64)")
        axes.legend()
    plt.savefig(path)


def main(parser, arguments):
    """Run all contests."""
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16"], help="of q, k and v"
    )
    parser.add_argument("--longest", type=int, default=16384, help="largest length to run")
    options = parser.parse_args(arguments)
    close = {"float32": 1e-4, "bfloat16": 0.1}[options.dtype]
    everything, parts = {}, []

    def run(task, batch, length, who=PEERS, causal=False, tolerance=close):
        case = {"task": task, "dtype": options.dtype, "causal": causal}
        together = length < 8192 or len(who) == 1
        arrays = inputs(batch, length)
        results = contest(who, case, arrays, options.rounds, tolerance, together)
        modules = " ".join(module for _, module in who)
        everything[f"{task} {batch}x{length} {modules}{' causal' * causal}"] = results
        return results

    for task in ("forward", "both"):
        title = "Forward" if task == "forward" else "Forward and backward"
        for batch, length in SHAPES:
            if length <= options.longest:
                part = times(run(task, batch, length), OWN)
                parts.append(f"## {title}, B = {batch}, T = {length}\n\n{part}")
                print(parts[-1], flush=True)
    causal = run("forward", 1, 4096, causal=True)
    parts.append(f"## Forward, causal, B = 1, T = 4096\n\n{times(causal, OWN)}")
    flag = []
    for task in ("forward", "both"):
        results = run(task, 1, 4096, FLAG, tolerance=None)
        flag.append(f"{statistics.median(ratios(results, 'causal', 'not causal')):.2f}")
    parts.append(
        f"The causal flag takes {flag[0]} of the time without it forward, {flag[1]} forward and "
        "backward."
    )
    print(*parts[-2:], sep="\n\n", flush=True)
    growth = {"forward": [], "both": []}
    lengths = [t for t in GROWTH if t <= options.longest]
    for length in lengths:
        for task, points in growth.items():
            result = run(task, 1, length, PEERS[:1])[OWN]
            points.append((statistics.median(result["seconds"]), result["peak_mib"]))
    parts.append(growth_part(lengths, growth))
    name = f"attention-{options.dtype}"
    write_json(name, everything)
    write_result(name, f"Attention in {options.dtype}", [MEDIANS, *parts])
    plot(lengths, growth, speeds_folder() / f"{name}.svg")
