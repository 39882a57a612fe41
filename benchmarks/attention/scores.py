"""Scores of attention compared by length: `python -m benchmarks scores`.

Additive, bilinear, multiplicative and scaled dot product of this library, and
`keras.layers.AdditiveAttention`, on 2 heads of width 64 without a mask and without returning the
weights: milliseconds and memory of one forward pass, and of one with the gradients of inputs and
parameters. Writes results/PROCESSOR/scores.md and .json.
"""

import statistics

import numpy as np

from benchmarks.harness.arena import contest
from benchmarks.harness.report import write_json, write_result

PEER = [("tf_transformer", "attention.peers.scores")]
HEADS, WIDTH = 2, 64
# Learned numbers of each; additive attention has as many units as columns.
PARAMETERS = {
    "additive": 2 * WIDTH**2 + WIDTH,
    "bilinear": WIDTH**2,
    "multiplicative": 0,
    "scaled dot product": 0,
    "Keras's additive": WIDTH,
}
LENGTHS = [128, 512, 2048, 8192]
KERAS_LONGEST = 2048  # it holds several tensors (heads, T, S, width): 2 GiB each at 2048
REMARK = """\
Medians over the rounds, and the memory that the first call needed beyond what the process held
before it. T queries and as many keys. Keras's layer has no projections of queries and keys.
"""


def inputs(length):
    """q, k, v and the gradient of the output, (2, T, 64)."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((HEADS, length, WIDTH), np.float32) for name in "qkvg"}


def main(parser, arguments):
    """Write the table."""
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="T")
    options = parser.parse_args(arguments)
    everything = {}
    lines = ["| T | score | parameters | forward | with gradients |", "|---|---|---|---|---|"]
    for length in options.lengths:
        arrays = inputs(length)
        for score, parameters in PARAMETERS.items():
            if score.startswith("Keras") and length > KERAS_LONGEST:
                continue
            cells = []
            for task in ("forward", "both"):
                case = {"score": score, "task": task}
                # One at a time: TensorFlow keeps memory, and the next call would seem to need none.
                [result] = contest(PEER, case, arrays, options.rounds, tolerance=None).values()
                everything[f"{score} {length} {task}"] = result
                milliseconds = 1000 * statistics.median(result["seconds"])
                cells.append(f"{milliseconds:,.1f} ms, {result['peak_mib']:,.0f} MiB")
            lines.append(f"| {length} | {score} | {parameters:,} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    write_json("scores", everything)
    setting = "Each ran in its own process, one after the other."
    write_result("scores", "Scores of attention", [REMARK, "\n".join(lines)], setting)
