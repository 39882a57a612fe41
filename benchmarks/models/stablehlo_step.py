"""Write a training step as StableHLO: `python -m benchmarks stablehlo_step FOLDER`.

`accelerator_step` runs the files on another machine. This program needs TensorFlow, but no GPU.
Each program takes weights, states of the random generators and three batches of ids (source, target
in, target out), and returns the loss, the gradients and the new states: what a step of `fit` does
before the optimizer.
"""

import json
from pathlib import Path

import numpy as np

BASE = {"layers": 6, "width": 512, "heads": 8, "dff": 2048, "vocab": 32000, "positions": 512}
SMALL = {"layers": 2, "width": 64, "heads": 4, "dff": 128, "vocab": 101, "positions": 512}
CASES = [
    {"dtype": "float32", "batch": 5, "length": 13, "rate": 0.0, "sizes": SMALL, "checked": True},
    {"dtype": "float32", "batch": 128, "length": 64, "rate": 0.1, "sizes": BASE},
    {"dtype": "mixed_bfloat16", "batch": 128, "length": 64, "rate": 0.1, "sizes": BASE},
    {"dtype": "mixed_bfloat16", "batch": 16, "length": 512, "rate": 0.1, "sizes": BASE},
]


def step(case):
    """The function, and its variables: those with a gradient, and the others."""
    import tensorflow as tf

    from tf_transformer import SmoothedCrossentropy, Transformer

    sizes = case["sizes"]
    model = Transformer(
        *(sizes[name] for name in ("layers", "width", "heads", "dff")),
        *(sizes[name] for name in ("vocab", "vocab", "positions", "positions")),
        rate=case["rate"],
        share_embeddings=True,
        dtype=case["dtype"],
    )
    model.build()
    loss = SmoothedCrossentropy(0.1)
    weights, states = model.trainable_variables, model.non_trainable_variables

    def run(*arguments):
        trained, others = arguments[: len(weights)], arguments[len(weights) : -3]
        source, target, expected = arguments[-3:]
        with tf.GradientTape() as tape:
            tape.watch(trained)
            logits, others = model.stateless_call(trained, others, (source, target), training=True)
            result = loss(expected, logits)
        gradients = tape.gradient(result, trained)
        return [result, *map(tf.convert_to_tensor, gradients), *others]

    return run, weights, states


def checked(run, variables, case):
    """Arguments with padding, and the results of TensorFlow on this machine."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    batch, length = case["batch"], case["length"]
    ids = rng.integers(3, case["sizes"]["vocab"], (3, batch, length), np.int32)
    for array in ids:
        array[np.arange(length) >= rng.integers(3, length + 1, (batch, 1))] = 0
    arguments = [*map(np.asarray, variables), *ids]
    arrays = {f"argument{i}": array for i, array in enumerate(arguments)}
    return arrays | {
        f"result{i}": x.numpy() for i, x in enumerate(run(*map(tf.constant, arguments)))
    }


def main(parser, arguments):
    """Write one file for each case, arrays for those that are checked, and `cases.json`."""
    parser.add_argument("folder", type=Path, help="where the files go")
    options = parser.parse_args(arguments)
    import keras
    import tensorflow as tf

    from tf_transformer import stablehlo

    options.folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for case in CASES:
        keras.utils.set_random_seed(0)
        # TensorFloat-32 has a mantissa of ten bits: enough for training, too few for the check.
        tf.config.experimental.enable_tensor_float_32_execution(not case.get("checked"))
        run, weights, states = step(case)
        specs = [tf.TensorSpec(v.shape, v.dtype) for v in (*weights, *states)]
        ids = [tf.TensorSpec((case["batch"], case["length"]), tf.int32)] * 3
        name = f"step{len(cases)}"
        (options.folder / f"{name}.mlir").write_text(stablehlo(run, *specs, *ids), "utf-8")
        if case.get("checked"):
            np.savez(options.folder / f"{name}.npz", **checked(run, (*weights, *states), case))
        shapes = [[list(spec.shape), spec.dtype.name] for spec in specs]
        cases.append({**case, "name": name, "weights": len(weights), "arguments": shapes})
    (options.folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n", "utf-8")
    print(f"{len(cases)} programs in {options.folder}")
