"""Time and memory of loading a checkpoint of BERT-base's size: `python benchmarks/load_bert.py`.

Writes results/load_bert.md. The weights are random, 109,482,240 of them in float32, written by
`save_pretrained` into a temporary folder; each round loads them in a new process. Needs
`pip install -e ".[bert]"`.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from side_by_side import run, write_result
from worker import memory

REMARK = """\
Medians over the rounds, in brackets the spread. Seconds are those of `Bert.from_pretrained` alone;
the file lies in the cache of the operating system. "Beyond the model": the peak of what the process
held less what it holds afterwards, pages of the mapped file included. The size is that of the file.
"""


def main():
    """Write a checkpoint and load it, or load one if it is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", help="load this folder in this process, print JSON")
    options = parser.parse_args()
    if options.load:
        print(json.dumps(load(options.load)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        size = Path(folder, "bert", "model.safetensors").stat().st_size / 2**20
        rounds = [
            json.loads(run("tf_transformer", "load_bert.py", "--load", f"{folder}/bert"))
            for _ in range(options.rounds)
        ]
    beyond = [(result["peak"] - result["after"]) / size for result in rounds]
    rows = {
        "seconds": ([result["seconds"] for result in rounds], "{:.2f}"),
        "MiB before": ([result["before"] for result in rounds], "{:,.0f}"),
        "MiB at the peak": ([result["peak"] for result in rounds], "{:,.0f}"),
        "MiB afterwards": ([result["after"] for result in rounds], "{:,.0f}"),
        "beyond the model, in sizes": (beyond, "{:.2f}"),
    }
    lines = [f"| {size:,.0f} MiB | |", "|---|---|"]
    for name, (values, form) in rows.items():
        middle, least, most = (
            form.format(value) for value in (statistics.median(values), min(values), max(values))
        )
        lines.append(f"| {name} | {middle} ({least} to {most}) |")
    setting = "Each round was a process of its own."
    write_result("load_bert", "Loading BERT-base", [REMARK, "\n".join(lines)], setting)


def write(folder):
    """A checkpoint with random weights, in FOLDER/bert."""
    from tf_transformer.models.bert import Bert, BertConfig  # here: TensorFlow counts as memory

    model = Bert(BertConfig())
    model.build()
    model.save_pretrained(Path(folder) / "bert")


def load(folder):
    """Seconds, and MiB held before, at most and afterwards."""
    import tensorflow as tf

    from tf_transformer.models.bert import Bert

    tf.random.normal((4, 4))  # what TensorFlow makes at its first operation
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, start = memory("VmRSS"), time.perf_counter()
    model = Bert.from_pretrained(folder)
    seconds = time.perf_counter() - start
    assert model.count_params() == 109_482_240
    return {
        "seconds": seconds,
        "before": before,
        "peak": memory("VmHWM"),
        "after": memory("VmRSS"),
    }


if __name__ == "__main__":
    main()
