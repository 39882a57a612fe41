"""Write the attention core as StableHLO: `python -m benchmarks stablehlo_cases FOLDER`.

`accelerator` runs the files on another machine. This program needs TensorFlow, but no GPU.
"""

import itertools
import json
from pathlib import Path

HEADS, WIDTH, WINDOW = 12, 64, 256


def core(task, plan, window=None):
    """Return a function of q, k, v, the upstream gradient and optionally a bool mask."""
    import tensorflow as tf

    from tf_transformer import scaled_dot_product_attention

    def attend(q, k, v, mask):
        options = {"plan": plan, "window": window, "jit": True}
        options["return_attention_weights"] = False
        return scaled_dot_product_attention(q, k, v, mask, **options)[0]

    def run(q, k, v, upstream, mask=None):
        if task == "forward":
            return [attend(q, k, v, mask)]
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            output = attend(q, k, v, mask)
        return [output, *tape.gradient(output, (q, k, v), output_gradients=upstream)]

    return run


def main(parser, arguments):
    """Write one file for each dtype, task, plan and length, and `cases.json`."""
    parser.add_argument("folder", type=Path, help="where the files go")
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="T = S")
    options = parser.parse_args(arguments)
    import tensorflow as tf

    from tf_transformer import AttentionPlan, stablehlo

    plans = {
        "whole": ("whole", None),
        "blockwise 256x512": (AttentionPlan("blockwise"), None),
        "blockwise 1024x1024": (
            AttentionPlan("blockwise", query_block=1024, key_block=1024),
            None,
        ),
        f"windowed {WINDOW}": ("auto", WINDOW),
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    # TensorFloat-32 has a mantissa of ten bits, too few for the tolerance of 1e-5.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    # Timed at T = S. The masked case checks correctness, at lengths that no block size divides.
    sizes = [(length, length, False) for length in options.lengths] + [(131, 1049, True)]
    cases = []
    for dtype, task, (name, (plan, window)), (length, source, masked) in itertools.product(
        ("float32", "bfloat16"), ("forward", "both"), plans.items(), sizes
    ):
        if masked and window:
            continue
        q, k = (tf.TensorSpec((1, HEADS, n, WIDTH), dtype) for n in (length, source))
        mask = [tf.TensorSpec((1, 1, length, source), tf.bool)] if masked else []
        case = {"dtype": dtype, "task": task, "plan": name, "length": length, "source": source}
        case |= {"heads": HEADS, "width": WIDTH, "masked": masked, "window": window}
        case["file"] = f"{len(cases):03d}.mlir"
        text = stablehlo(core(task, plan, window), q, k, k, q, *mask)
        (options.folder / case["file"]).write_text(text, encoding="utf-8")
        cases.append(case)
    (options.folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} programs in {options.folder}")
