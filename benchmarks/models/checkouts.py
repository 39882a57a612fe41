"""Two checkouts of this library compared: `python -m benchmarks checkouts FOLDER`.

FOLDER is a checkout of another commit, such as `git worktree add FOLDER COMMIT` makes. One process
for each runs the same calls in turn. Writes the milliseconds there, and the median and quartiles of
the ratios, to results/PROCESSOR/checkouts.md.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness.report import write_result

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
# name: (what it is, calls in a round)
CALLS = {
    "train": ("a training step of 64 pairs of 16 tokens, 2 + 2 layers, width 128", 5),
    "decode": ("greedy decoding of 16 sentences with a cache, 30 steps", 3),
    "int8": ("20 dense layers with GELU in int8, 64 rows, 256 to 1,024 columns", 10),
    "eager": ("the same model, 2 pairs of 7 tokens, called eagerly", 10),
}


def calls():
    """The functions of `CALLS`, each of which waits for its result."""
    import keras
    import numpy as np
    import tensorflow as tf

    from tf_transformer import (
        FusedAdam,
        InverseSquareRootSchedule,
        SmoothedCrossentropy,
        Transformer,
    )
    from tf_transformer.generation import greedy_decode
    from tf_transformer.layers import FlatDense

    keras.utils.set_random_seed(0)
    vocab, rng = 4000, np.random.default_rng(0)
    ids = [rng.integers(3, vocab, (64, 16), dtype=np.int32) for _ in range(3)]
    model = Transformer(2, 128, 4, 512, vocab, vocab, 96, 96, share_embeddings=True)
    model.build()
    optimizer = FusedAdam(InverseSquareRootSchedule(128, 400), 0.9, 0.98, 1e-9)
    model.compile(optimizer, SmoothedCrossentropy(), jit_compile=False)
    batches = iter(tf.data.Dataset.from_tensors(((ids[0], ids[1]), ids[2])).repeat())
    model.make_train_function()
    sentences, few = tf.constant(ids[0][:16]), tf.constant(ids[0][:2, :7])

    @tf.function(autograph=False)
    def decoded(x):
        ends = {"start_id": 1, "end_id": vocab + 1, "max_length": 30}  # no sentence ends early
        return greedy_decode(model.step, model.start(x, 30), 16, **ends)

    layer = FlatDense(1024, activation="gelu")
    layer.build((None, 256))
    layer.quantize("int8")
    layer.input_range = 4.0
    dense, x = tf.function(layer.__call__, autograph=False), tf.random.normal((64, 256))
    return {
        "train": lambda: float(model.train_function(batches)["loss"]),
        "decode": lambda: decoded(sentences).numpy(),
        "int8": lambda: [dense(x) for _ in range(20)][-1].numpy(),
        "eager": lambda: model((few, few), training=False).numpy(),
    }


def work():
    """For each line `NAME COUNT` of the input, print the median milliseconds of the calls."""
    functions = calls()
    for function in functions.values():
        for _ in range(3):
            function()
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        seconds = []
        for _ in range(int(count)):
            start = time.perf_counter()
            functions[name]()
            seconds.append(time.perf_counter() - start)
        print(1000 * statistics.median(seconds), flush=True)


def main(parser, arguments):
    """Run the rounds and write the table."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds")
    options = parser.parse_args(arguments)
    before, after = (started(root) for root in (options.folder.resolve(), ROOT))
    lines = ["| call | ms there | here / there |", "|---|---|---|"]
    for name, (what, count) in CALLS.items():
        there, ratios = [], []
        for _ in range(options.rounds):
            milliseconds = [asked(process, name, count) for process in (before, after)]
            there.append(milliseconds[0])
            ratios.append(milliseconds[1] / milliseconds[0])
        low, middle, high = statistics.quantiles(ratios, n=4)
        cell = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"| {what} | {statistics.median(there):.1f} | {cell} |")
    for process in (before, after):
        process.communicate()
    commits = [commit(root) for root in (options.folder, ROOT)]
    setting = f"Here: {commits[1]}. There: {commits[0]}. In brackets the quartiles of the rounds."
    write_result("checkouts", "Two checkouts", ["\n".join(lines)], setting)


def started(root):
    """A process that measures the checkout in a folder."""
    if not (root / "tf_transformer").is_dir():
        raise SystemExit(f"FOLDER: expected a checkout with tf_transformer/, got {root}")
    program = f"import runpy; runpy.run_path({__file__!r})['work']()"
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": os.pathsep.join(map(str, (root, ROOT)))}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=root,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"FOLDER: the library in {root} does not run this benchmark")
    return process


def asked(process, name, count):
    """The milliseconds of a call in a process."""
    process.stdin.write(f"{name} {count}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def commit(root):
    """The short name of the commit of a checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"
