"""Training compared with keras-hub and torch: `python -m benchmarks train`.

Each library trains in a new process in each round: one epoch that is not timed, then one that is.
Writes results/PROCESSOR/train.md.
"""

import statistics
import tempfile

import numpy as np

from benchmarks.harness.arena import contest
from benchmarks.harness.environments import run
from benchmarks.harness.report import MEDIANS, ratios, spread, write_result

OWN = "tf_transformer"
PEERS = [
    (OWN, "training.peers.ours"),
    ("keras-hub", "training.peers.hub"),
    ("torch", "training.peers.pytorch"),
]
SIZES = {"layers": 2, "width": 128, "heads": 4, "dff": 512, "vocab": 4000, "positions": 96}
REMARKS = {
    0.1: "The peers also drop attention weights; this library, as in the notes, does not.",
    0.0: "The same work for all.",
}


def main(parser, arguments):
    """Run the rounds with the preset's dropout and without."""
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--batches", type=int, default=60, help="of the small preset")
    options = parser.parse_args(arguments)
    arrays = batches(options.batches)
    tokens = sum(np.count_nonzero(array) for name, array in arrays.items() if name[0] == "c")
    parts = []
    for rate, remark in REMARKS.items():
        case = {"sizes": SIZES, "rate": rate, "steps": 1}
        results = contest(PEERS, case, arrays, options.rounds, None, together=False, repeats=1)
        losses = ", ".join(f"{name} {row['values'][0][0]:.2f}" for name, row in results.items())
        parts.append(
            f"## Dropout {rate}\n\n{remark} Mean loss of the second epoch: {losses}.\n\n"
            f"{MEDIANS}\n\n{table(results, tokens)}"
        )
        print(parts[-1], flush=True)
    write_result("train", "Training, compared with its peers", parts)


def batches(count):
    """The small preset's first batches: source a0, target in b0, target out c0, and so on."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/batches.npz"
        run(OWN, "benchmarks.training.store_batches", path, str(count))
        with np.load(path) as data:
            return dict(data)


def table(results, tokens):
    """Markdown: median throughput, the speed of this library round by round, and memory."""
    lines = [
        f"| library | target tokens per second | speed of {OWN} / speed of this | peak memory |",
        "|---|---|---|---|",
    ]
    for name, result in results.items():
        speed = tokens / statistics.median(result["seconds"])
        memory = statistics.median(result["process_mib"])
        compared = spread(ratios(results, name, OWN))
        lines.append(f"| {name} | {speed:,.0f} | {compared} | {memory:,.0f} MiB |")
    return "\n".join(lines)
