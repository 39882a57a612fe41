"""A training step on a GPU or TPU: `python -m benchmarks accelerator_step FOLDER`.

Runs the programs that `stablehlo_step` wrote into FOLDER, through jax: compares loss and gradients
of a small model with those of TensorFlow on a CPU, and times the base Transformer. Also times the
same model built from `torch.nn.Transformer`, if torch is installed. This library and TensorFlow
need not be installed.
"""

import json
import statistics
from pathlib import Path

import numpy as np

from benchmarks.attention.accelerator import seconds

TOLERANCE = 1e-5


def random_arguments(case):
    """Random weights of small size, states of random generators, and ids without padding."""
    rng = np.random.default_rng(0)
    arrays = [
        (0.02 * rng.standard_normal(shape)).astype(dtype)
        if "float" in dtype
        else rng.integers(0, 2**31, shape).astype(dtype)
        for shape, dtype in case["arguments"]
    ]
    shape = case["batch"], case["length"]
    return [*arrays, *rng.integers(3, case["sizes"]["vocab"], (3, *shape), np.int32)]


def check(program, arrays):
    """Loss and gradients agree with TensorFlow's; the largest error, relative to its tensor."""
    count = sum(name.startswith("argument") for name in arrays)
    results = program(*program.place([arrays[f"argument{i}"] for i in range(count)]))
    errors = []
    for i, result in enumerate(results):
        expected = arrays[f"result{i}"]
        if expected.dtype.kind == "f":
            scale = max(np.abs(expected).max(), 1e-3)
            errors.append(np.abs(np.asarray(result) - expected).max() / scale)
    assert max(errors) < TOLERANCE, f"error {max(errors)}"
    return max(errors)


def by_torch(case, compiled):
    """Return a function that does the same work with torch, or None."""
    try:
        import torch
    except ImportError:
        return None
    from benchmarks.training.peers.pytorch import TorchTransformer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")  # TensorFloat-32, as TensorFlow's default
    model = TorchTransformer(case["sizes"], case["rate"]).to(device).train()
    ids = random_arguments(case)[-3:]
    source, target, expected = (torch.from_numpy(x).long().to(device) for x in ids)

    def loss():
        with torch.autocast(device, torch.bfloat16, enabled="bfloat16" in case["dtype"]):
            logits = model.logits(model.decode(target, model.encode(source), source))
        return torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), expected.flatten(), ignore_index=0, label_smoothing=0.1
        )

    function = torch.compile(loss) if compiled else loss

    def run():
        model.zero_grad()
        function().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def main(parser, arguments):
    """Check and time every case; write the table if asked for."""
    parser.add_argument("folder", type=Path, help="written by stablehlo_step")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    parser.add_argument("--result", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    import jax

    from benchmarks.attention.peers.on_device import Program

    jax.config.update("jax_enable_x64", True)  # the states of Keras's generators are int64
    device = jax.local_devices()[0]
    lines = [
        f"# A training step on {device.device_kind}\n",
        "Forward and backward of the base Transformer (6 + 6 layers, width 512, vocabulary 32,000, "
        "one embedding; dropout 0.1, label smoothing), without the optimizer. Medians of the "
        "rounds; tokens are those of the target.\n",
        "| dtype | B, T | | ms | tokens/s | MiB |",
        "|---|---|---|---|---|---|",
    ]
    for case in json.loads((options.folder / "cases.json").read_text("utf-8")):
        text = (options.folder / f"{case['name']}.mlir").read_text("utf-8")
        program = Program(text, device, outputs=1 + len(case["arguments"]))
        if case.get("checked"):
            error = check(program, np.load(options.folder / f"{case['name']}.npz"))
            checked = f"Loss and gradients of a small model with padding: error {error:.1e}."
            print(checked, flush=True)
            continue
        placed = program.place(random_arguments(case))
        functions = {"tf_transformer": lambda program=program, placed=placed: program(*placed)}
        for name, compiled in (("torch", False), ("torch, compiled", True)):
            if function := by_torch(case, compiled):
                functions[name] = function
        for function in functions.values():
            function(), function()  # compiled
        rounds = [{n: seconds(f) for n, f in functions.items()} for _ in range(options.rounds)]
        for name in functions:
            median = statistics.median(times[name] for times in rounds)
            tokens = case["batch"] * case["length"] / median
            memory = f"{program.temporary_mib:,.0f}" if name == "tf_transformer" else ""
            sizes = f"{case['batch']}, {case['length']}"
            row = f"{case['dtype']} | {sizes} | {name} | {1000 * median:.2f} | {tokens:,.0f} | "
            lines.append(f"| {row}{memory} |")
            print(lines[-1], flush=True)
    lines += ["", checked]
    if options.result:
        options.result.write_text("\n".join(lines) + "\n", "utf-8")
