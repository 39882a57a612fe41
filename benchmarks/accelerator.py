"""The attention core on a GPU or TPU: does the contract hold there, and how fast is it?

Takes the programs that `stablehlo_cases.py` wrote; needs NumPy and jax only, no TensorFlow. Beside
them it times, where they can be had, `torch` (flash attention) and `jax.nn.dot_product_attention`.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
from jaxlib import xla_client

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


class Program:
    """StableHLO text, compiled for a device."""

    def __init__(self, text, device):
        self.device = device
        self.loaded = device.client.compile_and_load(
            text, xla_client.DeviceList((device,)), xla_client.CompileOptions()
        )

    @property
    def temporary_mib(self):
        """What the program holds beside its inputs and outputs."""
        return self.loaded.get_compiled_memory_stats().temp_size_in_bytes / 2**20

    def place(self, arrays):
        """Arrays on the device."""
        return [jax.device_put(array, self.device) for array in arrays]

    def __call__(self, *arrays):
        results = self.loaded.execute_sharded(arrays)
        results = [shards[0] for shards in results.disassemble_into_single_device_arrays()]
        return jax.block_until_ready(results)


def inputs(case):
    """q, k, v, the gradient from above and, for a masked case, which keys are free."""
    rng = np.random.default_rng(0)
    shapes = [(1, case["heads"], case[n], case["width"]) for n in ("length", "source")]
    arrays = [rng.standard_normal(shapes[i], np.float32) for i in (0, 1, 1, 0)]
    arrays = [array.astype(DTYPES[case["dtype"]]) for array in arrays]
    if not case["masked"]:
        return arrays
    free = rng.random((1, 1, case["length"], case["source"])) < 0.7
    free[..., 5, :] = False  # a query without a free key
    free[..., -7:] = False  # keys that are free to nobody
    return [*arrays, free]


def reference(q, k, v, upstream, free=None, rows=1024):
    """Output and gradients of the first head in float64, `rows` queries at a time."""
    q, k, v, upstream = (x[0, 0].astype(np.float64) for x in (q, k, v, upstream))
    scale = q.shape[-1] ** -0.5
    output, dq, dk, dv = (np.zeros_like(x) for x in (q, q, k, v))
    for start in range(0, len(q), rows):
        some = slice(start, start + rows)
        scores = q[some] @ k.T * scale
        if free is not None:
            scores = np.where(free[0, 0, some], scores, -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        output[some] = weights @ v
        slope = np.sum(upstream[some] * output[some], -1, keepdims=True)
        dscores = weights * (upstream[some] @ v.T - slope)
        if free is not None:
            dscores = np.where(free[0, 0, some], dscores, 0)
        dq[some] = dscores @ k * scale
        dk += dscores.T @ q[some] * scale
        dv += weights.T @ upstream[some]
    return output, dq, dk, dv


def distance(results, expected):
    """The largest error, in units of the largest expected value if that is above 1."""
    errors = []
    for result, one in zip(results, expected, strict=False):
        result = np.asarray(result)[0, 0].astype(np.float64)
        assert np.isfinite(result).all()
        errors.append(np.abs(result - one).max() / max(1, np.abs(one).max()))
    return max(errors)


def check_masked(program, arrays):
    """Blocked rows average; blocked keys and values show nowhere, to the last bit."""
    q, k, v, upstream, free = arrays
    results = [np.asarray(x) for x in program(*program.place(arrays))]
    average = v.astype(np.float64).mean(-2)
    np.testing.assert_allclose(results[0][..., 5, :].astype(np.float64), average, atol=1e-2)
    k, v = k.copy(), v.copy()
    k[..., -7:, :], v[..., -7:, :] = 99, -99
    changed = [np.asarray(x) for x in program(*program.place((q, k, v, upstream, free)))]
    others = np.arange(q.shape[2]) != 5
    assert (results[0][..., others, :] == changed[0][..., others, :]).all()


def peers(case, arrays, device):
    """Functions of no arguments, by name, that do the same work."""
    functions = {}
    both = case["task"] == "both"
    q, k, v, upstream = (jax.device_put(x.swapaxes(1, 2), device) for x in arrays)
    attend = jax.nn.dot_product_attention

    def with_gradients(q, k, v, upstream):
        output, backward = jax.vjp(attend, q, k, v)
        return output, *backward(upstream)

    function = jax.jit(with_gradients if both else lambda q, k, v, upstream: attend(q, k, v))
    functions["jax"] = lambda: jax.block_until_ready(function(q, k, v, upstream))
    try:
        import torch
    except ImportError:
        return functions
    if device.platform == "gpu" and not torch.cuda.is_available():
        return functions
    place = {"device": "cuda" if device.platform == "gpu" else "cpu"}
    place["dtype"] = getattr(torch, case["dtype"])
    tensors = [torch.tensor(x.astype(np.float32), **place).requires_grad_(both) for x in arrays]

    def by_torch():
        output = torch.nn.functional.scaled_dot_product_attention(*tensors[:3])
        if both:
            torch.autograd.grad(output, tensors[:3], tensors[3])
        if device.platform == "gpu":
            torch.cuda.synchronize()

    functions["torch"] = by_torch
    return functions


def seconds(function):
    """Of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    """Check and time every case; write results/accelerator.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where stablehlo_cases.py wrote")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--result", type=Path, help="a Markdown file to write")
    options = parser.parse_args()
    device = jax.local_devices()[0]
    cases = json.loads((options.folder / "cases.json").read_text(encoding="utf-8"))
    groups = {}
    for case in cases:
        key = case["dtype"], case["task"], case["length"], case["masked"]
        groups.setdefault(key, []).append(case)
    lines = [
        f"# The attention core on {device.device_kind}\n",
        "Milliseconds, medians of the rounds; largest error against float64 (first head); MiB of "
        "the program beside its inputs and outputs.\n",
        "| dtype | task | T, S | | ms | error | MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for (dtype, task, length, masked), group in groups.items():
        arrays = inputs(group[0])
        expected = reference(*arrays)
        functions, notes = {}, {}
        for case in group:
            program = Program((options.folder / case["file"]).read_text(encoding="utf-8"), device)
            placed = program.place(arrays)
            error = distance(program(*placed), expected)
            assert error < TOLERANCE[dtype], f"{case}: error {error}"
            if masked:
                check_masked(program, arrays)
            notes[case["plan"]] = f"{error:.1e} | {program.temporary_mib:,.0f}"
            functions[case["plan"]] = lambda program=program, placed=placed: program(*placed)
        if not masked:
            functions |= peers(group[0], arrays, device)
        for function in functions.values():
            function()  # compiled
        rounds = [{n: seconds(f) for n, f in functions.items()} for _ in range(options.rounds)]
        for name in functions:
            median = 1000 * statistics.median(times[name] for times in rounds)
            sizes = f"{length}, {group[0]['source']}{', masked' * masked}"
            row = f"{dtype} | {task} | {sizes} | {name} | {median:.2f} | {notes.get(name, ' | ')}"
            lines.append(f"| {row} |")
            print(lines[-1], flush=True)
    if options.result:
        options.result.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
