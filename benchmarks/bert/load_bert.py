"""Time and memory of loading a checkpoint of BERT-base's size: `python -m benchmarks load_bert`.

The checkpoint has 109,482,240 random weights in float32, written with `save_pretrained` into a
temporary folder. Each round loads them in a new process. Writes
results/PROCESSOR/load_bert.md. Needs `pip install -e ".[bert]"`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from benchmarks.harness.environments import run
from benchmarks.harness.report import spread, write_result
from benchmarks.harness.worker import memory, reset_peak

REMARK = """\
Medians over the rounds, in brackets the range. Seconds: `Bert.from_pretrained` only; the file is in
the operating system's cache. `safetensors.numpy.load_file`, which only reads the arrays, runs next
in the same process; the ratio is that of the two. "Beyond the model": the peak memory of the
process minus what it holds afterwards, including pages of the mapped file. The unit is the size of
the file.
"""


def main(parser, arguments):
    """Write a checkpoint and load it, or load one if it is named."""
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.load:
        print(json.dumps(load(options.load)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        size = Path(folder, "bert", "model.safetensors").stat().st_size / 2**20
        rounds = [
            json.loads(run("tf_transformer", "benchmarks", "load_bert", "--load", f"{folder}/bert"))
            for _ in range(options.rounds)
        ]
    beyond = [(result["peak"] - result["after"]) / size for result in rounds]
    rows = {
        "seconds": ([result["seconds"] for result in rounds], ".2f"),
        "seconds of load_file": ([result["arrays_seconds"] for result in rounds], ".2f"),
        "ratio": ([result["seconds"] / result["arrays_seconds"] for result in rounds], ".2f"),
        "MiB before": ([result["before"] for result in rounds], ",.0f"),
        "MiB at the peak": ([result["peak"] for result in rounds], ",.0f"),
        "MiB afterwards": ([result["after"] for result in rounds], ",.0f"),
        "beyond the model, in file sizes": (beyond, ".2f"),
    }
    lines = [f"| {size:,.0f} MiB | |", "|---|---|"]
    for name, (values, form) in rows.items():
        lines.append(f"| {name} | {spread(values, form)} |")
    setting = "Each round ran in a new process."
    write_result("load_bert", "Loading BERT-base", [REMARK, "\n".join(lines)], setting)


def write(folder):
    """A checkpoint with random weights, in FOLDER/bert."""
    from tf_transformer.models.bert import Bert, BertConfig  # not needed for --help

    model = Bert(BertConfig())
    model.build()
    model.save_pretrained(Path(folder) / "bert")


def load(folder):
    """Seconds, and the MiB of the process before, at the peak and afterwards."""
    import tensorflow as tf
    from safetensors.numpy import load_file

    from tf_transformer.models.bert import Bert

    tf.random.normal((4, 4))  # what TensorFlow allocates for its first operation
    reset_peak()
    before, start = memory("VmRSS"), time.perf_counter()
    model = Bert.from_pretrained(folder)
    seconds = time.perf_counter() - start
    assert model.count_params() == 109_482_240
    result = {
        "seconds": seconds,
        "before": before,
        "peak": memory("VmHWM"),
        "after": memory("VmRSS"),
    }
    start = time.perf_counter()
    arrays = load_file(Path(folder) / "model.safetensors")
    return {**result, "arrays_seconds": time.perf_counter() - start, "arrays": len(arrays)}
