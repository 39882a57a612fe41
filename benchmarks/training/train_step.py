"""The cost of a training step under different settings: `python -m benchmarks train_step`.

Every variant runs in its own process, all variants in turn in each round. Writes the median
milliseconds of a step, and the median of the ratios to the first variant of the same round, to
results/PROCESSOR/train_step.md.
"""

import argparse
import os
import statistics
import subprocess
import sys

from benchmarks.harness.report import write_result

SETTINGS = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_ENABLE_ONEDNN_OPTS": "1"}
# name: (environment, jit_compile of the whole step, jit of the attention core, determinism)
VARIANTS = {
    "as shipped": (SETTINGS, False, False, False),
    "malloc for tensors": ({"TF_ENABLE_ONEDNN_OPTS": "1"}, False, False, False),
    "oneDNN off": ({**SETTINGS, "TF_ENABLE_ONEDNN_OPTS": "0"}, False, False, False),
    "attention core with XLA": (SETTINGS, False, True, False),
    "whole step with XLA": (SETTINGS, True, False, False),
    "deterministic operations": (SETTINGS, False, False, True),
}


def measure(variant, steps):
    """Print the milliseconds of each step, after three that are not timed."""
    import time

    import numpy as np
    import tensorflow as tf

    from tf_transformer import (
        FusedAdam,
        InverseSquareRootSchedule,
        MaskedAccuracy,
        SmoothedCrossentropy,
        attention_plan,
    )
    from tf_transformer.models import Transformer

    _, whole_step, core, deterministic = VARIANTS[variant]
    if deterministic:
        tf.keras.utils.set_random_seed(0)
        tf.config.experimental.enable_op_determinism()
    batch, length, vocab = 64, 16, 4000
    model = Transformer(2, 128, 4, 512, vocab, vocab, 96, 96, share_embeddings=True)
    model.build()
    optimizer = FusedAdam(InverseSquareRootSchedule(128, 400), 0.9, 0.98, 1e-9)
    model.compile(
        optimizer, SmoothedCrossentropy(), metrics=[MaskedAccuracy()], jit_compile=whole_step
    )
    rng = np.random.default_rng(0)
    ids = [rng.integers(3, vocab, (batch, length), dtype=np.int32) for _ in range(3)]
    data = tf.data.Dataset.from_tensors(((ids[0], ids[1]), ids[2])).repeat()
    model.make_train_function()
    batches = iter(data)
    with attention_plan(jit=core):  # the first step is traced here
        for _ in range(3):
            model.train_function(batches)
    for _ in range(steps):
        start = time.perf_counter()
        model.train_function(batches)
        print(1000 * (time.perf_counter() - start), flush=True)


def main(parser, arguments):
    """Run the rounds and write the table."""
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument("--steps", type=int, default=20, help="timed steps in a round")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, help="some variants, by name")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.variant:
        measure(options.variant, options.steps)
        return
    times = {name: [] for name in options.only or VARIANTS}
    for _ in range(options.rounds):
        for name in times:
            environment = VARIANTS[name][0]
            command = [sys.executable, "-m", "benchmarks", "train_step", "--variant", name]
            command += ["--steps", str(options.steps)]
            done = subprocess.run(
                command,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            times[name].append(statistics.median(map(float, done.stdout.split())))
    lines = ["| variant | ms a step | ratio |", "|---|---|---|"]
    first = next(iter(times.values()))
    for name, values in times.items():
        ratio = statistics.median(v / f for v, f in zip(values, first, strict=True))
        lines.append(f"| {name} | {statistics.median(values):.0f} | {ratio:.2f} |")
    setting = "Each variant ran in its own process, in turn."
    write_result("train_step", "A training step", ["\n".join(lines)], setting)
