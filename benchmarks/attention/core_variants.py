"""Variants of the attention core compared with their peers: `python -m benchmarks core_variants`.

Rotary positions against `keras_hub.layers.RotaryEmbedding`; ALiBi, grouped heads, and a window
against torch's `scaled_dot_product_attention`, which takes ALiBi and the window as a ready T x T
tensor and has an option for grouped heads. 12 heads of width 64, float32. Writes
results/PROCESSOR/core_variants.md.
"""

from benchmarks.attention.attention import OWN, inputs
from benchmarks.harness.arena import contest
from benchmarks.harness.report import MEDIANS, times, write_result

OURS = ("tf_transformer", "attention.peers.variants_ours")
TORCH = ("torch", "attention.peers.variants_torch")
HUB = ("keras-hub", "attention.peers.rotary_hub")
# title: peers, batch, length, and what the peers' functions read
CASES = {
    "Rotary positions of q and k": ([OURS, HUB], 8, 512, {"variant": "rotary"}),
    "ALiBi": ([OURS, TORCH], 1, 2048, {"variant": "alibi"}),
    "2 heads of keys and values": ([OURS, TORCH], 8, 512, {"variant": "grouped", "heads": 2}),
    "1 head of keys and values": ([OURS, TORCH], 8, 512, {"variant": "grouped", "heads": 1}),
    "Window of 128 keys on each side": ([OURS, TORCH], 1, 4096, {"variant": "window", "r": 128}),
}


def main(parser, arguments):
    """Run all contests."""
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    options = parser.parse_args(arguments)
    parts = []
    for title, (who, batch, length, case) in CASES.items():
        arrays = inputs(batch, length)
        if "heads" in case:
            arrays |= {name: arrays[name][:, : case["heads"]] for name in ("k", "v")}
        for task, words in (("forward", "forward"), ("both", "forward and backward")):
            found = {"task": task, "dtype": "float32", **case}
            results = contest(who, found, arrays, options.rounds, 1e-3)
            heading = f"## {title}, {words}, B = {batch}, T = {length}"
            parts.append(f"{heading}\n\n{times(results, OWN)}")
            print(parts[-1], flush=True)
    write_result("core_variants", "Variants of the attention core", [MEDIANS, *parts])
