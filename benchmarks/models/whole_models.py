"""Whole models compared with their peers: `python -m benchmarks whole_models`.

BERT-base's encoder stack (12 layers, width 768, 12 heads), forward, B = 8, T = 128, no padding, in
float32 and bfloat16; training steps of the base Transformer (6 + 6 layers, width 512), B = 16,
T = 64. Writes results/PROCESSOR/whole_models.md, .json and .svg. The plot needs matplotlib:
`pip install -e ".[bench]"`.
"""

import numpy as np

from benchmarks.harness.arena import contest
from benchmarks.harness.report import MEDIANS, bars, speeds_folder, times, write_json, write_result

OWN = "tf_transformer"
STACKS = [
    ("tf_transformer", "models.peers.stack_ours"),
    ("keras-hub", "models.peers.stack_hub"),
    ("huggingface", "models.peers.stack_torch"),
]
STEPS = [
    ("tf_transformer", "training.peers.ours"),
    ("keras-hub", "training.peers.hub"),
    ("torch", "training.peers.pytorch"),
]
BASE = {"layers": 6, "width": 512, "heads": 8, "dff": 2048, "vocab": 8000, "positions": 96}


def main(parser, arguments):
    """Run the contests."""
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    everything, parts = {}, []
    # keras-hub approximates GELU with tanh, which adds up to 1e-3 over 12 layers.
    for dtype, tolerance in (("float32", 5e-3), ("bfloat16", 0.3)):
        x = rng.standard_normal((8, 128, 768), np.float32)
        results = contest(STACKS, {"dtype": dtype}, {"x": x}, options.rounds, tolerance)
        everything[f"encoder stack, {dtype}"] = results
        parts.append(f"## Encoder stack, {dtype}\n\n{times(results, OWN)}")
        print(parts[-1], flush=True)
    ids = {f"{name}0": rng.integers(3, BASE["vocab"], (16, 64), dtype=np.int32) for name in "abc"}
    case = {"sizes": BASE, "rate": 0.1, "steps": 8}
    results = contest(STEPS, case, ids, options.rounds, tolerance=None)
    everything["eight training steps"] = results
    parts.append(
        "## Eight training steps of the base Transformer\n\nB = 16, T = 64, vocabulary 8,000, "
        f"dropout 0.1, Adam, label smoothing.\n\n{times(results, OWN)}"
    )
    print(parts[-1], flush=True)
    write_json("whole_models", everything)
    write_result("whole_models", "BERT-base's encoder and a training step", [MEDIANS, *parts])
    bars(everything, speeds_folder() / "whole_models.svg")
