"""The attention core on a GPU or TPU: `python -m benchmarks accelerator FOLDER`.

Runs the programs that `stablehlo_cases` wrote into FOLDER, through jax, checks their results
against float64, and measures time and memory. This library and TensorFlow need not be installed.
Also times `jax.nn.dot_product_attention` and, if installed, torch's `scaled_dot_product_attention`.
"""

import json
import statistics
import time
from pathlib import Path

import numpy as np

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


def inputs(case):
    """q, k, v, the gradient of the output and, for a masked case, the mask: True where allowed."""
    import ml_dtypes  # comes with jax

    dtypes = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
    rng = np.random.default_rng(0)
    shapes = [(1, case["heads"], case[n], case["width"]) for n in ("length", "source")]
    arrays = [rng.standard_normal(shapes[i], np.float32) for i in (0, 1, 1, 0)]
    arrays = [array.astype(dtypes[case["dtype"]]) for array in arrays]
    if not case["masked"]:
        return arrays
    free = rng.random((1, 1, case["length"], case["source"])) < 0.7
    free[..., 5, :] = False  # a query that may attend to no key
    free[..., -7:] = False  # keys that no query may attend to
    return [*arrays, free]


def reference(q, k, v, upstream, free=None, window=None, rows=1024):
    """Output and gradients of the first head in float64, `rows` queries at a time."""
    q, k, v, upstream = (x[0, 0].astype(np.float64) for x in (q, k, v, upstream))
    scale = q.shape[-1] ** -0.5
    output, dq, dk, dv = (np.zeros_like(x) for x in (q, q, k, v))
    for start in range(0, len(q), rows):
        some = slice(start, start + rows)
        allowed = np.bool_(True) if free is None else free[0, 0, some]
        if window:
            distances = np.arange(len(q))[some, None] - np.arange(len(k))
            allowed = allowed & (np.abs(distances) <= window)
        scores = np.where(allowed, q[some] @ k.T * scale, -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        output[some] = weights @ v
        slope = np.sum(upstream[some] * output[some], -1, keepdims=True)
        dscores = np.where(allowed, weights * (upstream[some] @ v.T - slope), 0)
        dq[some] = dscores @ k * scale
        dk += dscores.T @ q[some] * scale
        dv += weights.T @ upstream[some]
    return output, dq, dk, dv


def distance(results, expected):
    """The largest error, divided by the largest expected value if that is above 1."""
    errors = []
    for result, one in zip(results, expected, strict=False):
        result = np.asarray(result)[0, 0].astype(np.float64)
        assert np.isfinite(result).all()
        errors.append(np.abs(result - one).max() / max(1, np.abs(one).max()))
    return max(errors)


def check_masked(program, arrays):
    """A fully masked row averages the values; masked keys and values do not change a single bit."""
    q, k, v, upstream, free = arrays
    results = [np.asarray(x) for x in program(*program.place(arrays))]
    average = v.astype(np.float64).mean(-2)
    np.testing.assert_allclose(results[0][..., 5, :].astype(np.float64), average, atol=1e-2)
    k, v = k.copy(), v.copy()
    k[..., -7:, :], v[..., -7:, :] = 99, -99
    changed = [np.asarray(x) for x in program(*program.place((q, k, v, upstream, free)))]
    others = np.arange(q.shape[2]) != 5
    assert (results[0][..., others, :] == changed[0][..., others, :]).all()


def seconds(function):
    """Time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main(parser, arguments):
    """Check and time every case; write the table if asked for."""
    parser.add_argument("folder", type=Path, help="written by stablehlo_cases")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    parser.add_argument("--result", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    import jax

    from benchmarks.attention.peers.on_device import Program, peers

    device = jax.local_devices()[0]
    cases = json.loads((options.folder / "cases.json").read_text(encoding="utf-8"))
    groups = {}
    for case in cases:
        key = case["dtype"], case["task"], case["length"], case["masked"], case["window"]
        groups.setdefault(key, []).append(case)
    lines = [
        f"# The attention core on {device.device_kind}\n",
        "Milliseconds, medians of the rounds; largest error against float64 (first head); MiB of "
        "the program in addition to its inputs and outputs.\n",
        "| dtype | task | T, S | | ms | error | MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for (dtype, task, length, masked, window), group in groups.items():
        arrays = inputs(group[0])
        expected = reference(*arrays, window=window)
        functions, notes = {}, {}
        for case in group:
            text = (options.folder / case["file"]).read_text(encoding="utf-8")
            program = Program(text, device, outputs=1 if task == "forward" else 4)
            placed = program.place(arrays)
            error = distance(program(*placed), expected)
            assert error < TOLERANCE[dtype], f"{case}: error {error}"
            if masked:
                check_masked(program, arrays)
            notes[case["plan"]] = f"{error:.1e} | {program.temporary_mib:,.0f}"
            functions[case["plan"]] = lambda program=program, placed=placed: program(*placed)
        if not masked and not window:
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
