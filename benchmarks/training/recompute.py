"""Memory and time of layers computed again for the gradients: `python -m benchmarks recompute`.

A training step of a language model of 12 layers, width 256, plain and within `recompute_layers`,
each in a process of its own, in turn. Writes peak memory and time, compared with the plain step in
the same round, to results/PROCESSOR/recompute.md.
"""

import json
import statistics
import subprocess
import sys
import time

from benchmarks.harness.report import spread, write_result
from benchmarks.harness.worker import memory, reset_peak

KINDS = ("kept", "computed again")


def main(parser, arguments):
    """Measure both in turn, write the table."""
    parser.add_argument("--rounds", type=int, default=3, help="both in turn")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a process")
    parser.add_argument("--batch", type=int, default=4, help="texts in a batch")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text")
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")
    options = parser.parse_args(arguments)
    found = {kind: [] for kind in KINDS}
    sizes = options.jit, options.steps, options.batch, options.length
    for number in range(options.rounds):
        for recompute, kind in enumerate(KINDS):
            order = (str(int(size)) for size in (recompute, *sizes))
            call = [sys.executable, "-m", "benchmarks.training.recompute", *order]
            done = subprocess.run(call, stdout=subprocess.PIPE, check=True)
            found[kind].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}: {kind}: {found[kind][-1]}", flush=True)
    lines = [
        "| values inside layers | MiB for a step | ms, all cores | time / time of the plain step |",
        "|---|---|---|---|",
    ]
    for kind, results in found.items():
        pairs = zip(results, found["kept"], strict=True)
        ratios = [own["seconds"] / plain["seconds"] for own, plain in pairs]
        mib, ms = (
            statistics.median(result[name] for result in results) for name in ("mib", "seconds")
        )
        lines.append(f"| {kind} | {mib:,.0f} | {1000 * ms:,.0f} | {spread(ratios)} |")
    remark = (
        f"{options.batch} texts of {options.length} tokens. Memory: the most that the process "
        f"held, beyond what it held before the first step. Time: of the processor."
    )
    write_result("recompute", "Layers computed again", [remark, "\n".join(lines)], "")


def one_process(recompute, jit, steps, batch, length):
    """Print a line of JSON."""
    import tensorflow as tf

    from tf_transformer import FusedAdam, LanguageModel, SmoothedCrossentropy, recompute_layers

    model = LanguageModel(12, 256, 4, 1024, vocab_size=2000, max_position=length)
    model.build()
    model.compile(FusedAdam(1e-4), SmoothedCrossentropy(0.1), jit_compile=bool(jit))
    ids = tf.random.uniform((batch, length), 1, 2000, tf.int32, seed=1)
    reset_peak()
    before = memory("VmRSS")
    times = []
    with recompute_layers(bool(recompute)):
        for number in range(steps + 2):
            start = time.process_time()
            float(model.train_on_batch(ids, ids))
            if number >= 2:  # the first ones trace and allocate
                times.append(time.process_time() - start)
    print(json.dumps({"mib": memory("VmHWM") - before, "seconds": statistics.median(times)}))


if __name__ == "__main__":
    one_process(*map(int, sys.argv[1:]))
