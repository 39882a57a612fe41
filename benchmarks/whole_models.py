"""Whole models beside their peers: `python benchmarks/whole_models.py`.

Writes results/whole_models.md, .json and .svg. BERT-base's encoder stack (12 layers, width 768, 12
heads), forward, B = 8, T = 128, no padding, in float32 and bfloat16; training steps of the base
Transformer (6 + 6 layers, width 512), B = 16, T = 64. The plot needs matplotlib,
`pip install -e ".[bench]"`.
"""

import argparse

import numpy as np
from arena import bars, contest, table, write_json
from side_by_side import FOLDER, write_result

OWN = "tf_transformer"
STACKS = [
    ("tf_transformer", "stack_ours"),
    ("keras-hub", "stack_hub"),
    ("huggingface", "stack_torch"),
]
STEPS = [("tf_transformer", "ours"), ("keras-hub", "hub"), ("torch", "pytorch")]
BASE = {"layers": 6, "width": 512, "heads": 8, "dff": 2048, "vocab": 8000, "positions": 96}


def main():
    """Run the contests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    everything, parts = {}, []
    # keras-hub approximates GELU by tanh; 12 layers of that make 1e-3.
    for dtype, tolerance in (("float32", 5e-3), ("bfloat16", 0.3)):
        x = rng.standard_normal((8, 128, 768), np.float32)
        results = contest(STACKS, {"dtype": dtype}, {"x": x}, options.rounds, tolerance)
        everything[f"encoder stack, {dtype}"] = results
        parts.append(f"## Encoder stack, {dtype}\n\n{table(results, OWN)}")
        print(parts[-1], flush=True)
    ids = {name: rng.integers(3, BASE["vocab"], (16, 64), dtype=np.int32) for name in "abc"}
    case = {"sizes": BASE, "rate": 0.1, "steps": 8}
    results = contest(STEPS, case, ids, options.rounds, tolerance=None)
    everything["eight training steps"] = results
    parts.append(
        "## Eight training steps of the base Transformer\n\nB = 16, T = 64, vocabulary 8,000, "
        f"dropout 0.1, Adam, label smoothing.\n\n{table(results, OWN)}"
    )
    print(parts[-1], flush=True)
    write_json("whole_models", everything)
    bars(everything, FOLDER / "results" / "whole_models.svg")
    remark = "Medians over the rounds, in brackets the spread of the ratios within a round."
    write_result("whole_models", "BERT-base's encoder and a training step", [remark, *parts])


if __name__ == "__main__":
    main()
