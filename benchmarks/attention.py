"""The attention core beside its peers: `python benchmarks/attention.py`.

Writes results/attention-DTYPE.md. 12 heads of width 64, no mask, forward and forward with
backward; growth with the length; causal.
"""

import argparse
import statistics

import numpy as np
from arena import contest, peers, table, write_json
from side_by_side import write_result

OWN = "tf_transformer"
PEERS = [
    ("tf_transformer", "attention_ours"),
    ("tf_transformer", "attention_tensorflow"),
    ("tf_transformer", "attention_keras"),
    ("torch", "attention_torch"),
]
SHAPES = [(32, 128), (8, 512), (1, 2048), (1, 8192)]
GROWTH = [1024, 2048, 4096, 8192, 16384]


def inputs(batch, length):
    """q, k, v and the gradient that comes from above, (B, 12, T, 64)."""
    rng = np.random.default_rng(0)
    shape = (batch, 12, length, 64)
    return {name: rng.standard_normal(shape, np.float32) for name in ("q", "k", "v", "g")}


def main():
    """Run all contests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--longest", type=int, default=16384, help="leave longer ones out")
    options = parser.parse_args()
    tolerance = {"float32": 1e-4, "bfloat16": 0.1}[options.dtype]
    everything, parts = {}, []

    def run(task, batch, length, who=PEERS, causal=False, pooled=True):
        case = {"task": task, "dtype": options.dtype, "causal": causal}
        with peers(who, pooled) as started:  # anew for each case: nobody keeps memory from the last
            results = contest(started, case, inputs(batch, length), options.rounds, tolerance)
        name = f"{task} {batch}x{length}{' causal' if causal else ''}{' unpooled' * (not pooled)}"
        everything[name] = results
        return results

    for task in ("forward", "both"):
        title = "Forward" if task == "forward" else "Forward and backward"
        for batch, length in SHAPES:
            if length <= options.longest:
                # Three peers that hold gigabytes of scores each have to hand them back in between.
                part = table(run(task, batch, length, pooled=length < 8192), OWN)
                parts.append(f"## {title}, B = {batch}, T = {length}\n\n{part}")
                print(parts[-1], flush=True)
    causal = table(run("forward", 1, 4096, [PEERS[0], PEERS[1], PEERS[3]], causal=True), OWN)
    parts.append(f"## Forward, causal, B = 1, T = 4096\n\n{causal}")
    lines = ["| T | forward | forward and backward |", "|---|---|---|"]
    for length in [t for t in GROWTH if t <= options.longest]:
        cells = []
        for task in ("forward", "both"):
            result = run(task, 1, length, PEERS[:1], pooled=False)[OWN]
            seconds = statistics.median(result["seconds"])
            cells.append(f"{1000 * seconds:,.0f} ms, {result['peak_mib']:,.0f} MiB")
        lines.append(f"| {length} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    text = "Time, and the memory of one call beyond what the process held before it.\n\n"
    parts.append(f"## Growth of {OWN} with the length, B = 1\n\n{text}" + "\n".join(lines))
    write_json(f"attention-{options.dtype}", everything)
    remark = "Medians over the rounds, in brackets the spread of the ratios within a round."
    write_result(f"attention-{options.dtype}", f"Attention in {options.dtype}", [remark, *parts])


if __name__ == "__main__":
    main()
