"""Write the attention core as StableHLO files for `accelerator.py`; needs TensorFlow and no GPU."""

import argparse
import json
from pathlib import Path

import tensorflow as tf

from tf_transformer import AttentionPlan, scaled_dot_product_attention, stablehlo

HEADS, WIDTH = 12, 64
PLANS = {
    "whole": "whole",
    "blockwise 256x512": AttentionPlan("blockwise"),
    "blockwise 1024x1024": AttentionPlan("blockwise", query_block=1024, key_block=1024),
}


def core(task, plan):
    """A function of q, k, v, the gradient from above and perhaps a bool mask."""

    def attend(q, k, v, mask):
        options = {"plan": plan, "return_attention_weights": False, "jit": True}
        return scaled_dot_product_attention(q, k, v, mask, **options)[0]

    def run(q, k, v, upstream, mask=None):
        if task == "forward":
            return [attend(q, k, v, mask)]
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            output = attend(q, k, v, mask)
        return [output, *tape.gradient(output, (q, k, v), output_gradients=upstream)]

    return run


def main():
    """Write one file for each dtype, task, plan and length, and `cases.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    # The contract is 1e-5, and TensorFloat-32 keeps ten bits.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    # Timed at T = S; the contract is checked with a mask, at lengths that no block divides.
    sizes = [(length, length, False) for length in options.lengths] + [(131, 1049, True)]
    cases = []
    for dtype in ("float32", "bfloat16"):
        for task in ("forward", "both"):
            for name, plan in PLANS.items():
                for length, source, masked in sizes:
                    q, k = (tf.TensorSpec((1, HEADS, n, WIDTH), dtype) for n in (length, source))
                    mask = [tf.TensorSpec((1, 1, length, source), tf.bool)] if masked else []
                    case = {"dtype": dtype, "task": task, "plan": name, "length": length}
                    case |= {"source": source, "heads": HEADS, "width": WIDTH, "masked": masked}
                    case["file"] = f"{len(cases):03d}.mlir"
                    text = stablehlo(core(task, plan), q, k, k, q, *mask)
                    (options.folder / case["file"]).write_text(text, encoding="utf-8")
                    cases.append(case)
    (options.folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} programs in {options.folder}")


if __name__ == "__main__":
    main()
