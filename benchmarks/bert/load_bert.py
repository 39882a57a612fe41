"""Time and memory of loading BERT-base and GPT-2: `python -m benchmarks load_bert`.

The checkpoints have random weights in float32, written with `save_pretrained` into a temporary
folder. Each round loads them in a new process. Writes results/PROCESSOR/load_bert.md. Needs
`pip install -e ".[bert]"`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from benchmarks.harness.environments import run
from benchmarks.harness.report import spread, write_result
from benchmarks.harness.worker import memory, reset_peak

WEIGHTS = {"BERT-base": 109_482_240, "GPT-2": 124_439_808}
REMARK = """\
Medians over the rounds, in brackets the range. Seconds: `load` only; the file is in the operating
system's cache. `safetensors.numpy.load_file`, which only reads the arrays, runs next
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
    tables = [REMARK]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for name in WEIGHTS:
            path = Path(folder, name)
            size = (path / "model.safetensors").stat().st_size / 2**20
            command = ("benchmarks", "load_bert", "--load", f"{path}")
            rounds = [json.loads(run("tf_transformer", *command)) for _ in range(options.rounds)]
            tables.append(table(f"{name}, {size:,.0f} MiB", rounds, size))
    write_result("load_bert", "Loading a model", tables, "Each round ran in a new process.")


def table(title, rounds, size):
    """Markdown: the medians of a model of this size in MiB."""
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
    lines = [f"| {title} | |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| {name} | {spread(*values)} |" for name, values in rows.items())]
    )


def write(folder):
    """Models with random weights, in folders below."""
    from tf_transformer import LanguageModel, architectures, save_pretrained  # not for --help
    from tf_transformer.models.bert import Bert, BertConfig

    gpt2 = architectures.get("gpt2").choices()
    models = [Bert(BertConfig())]
    models.append(LanguageModel(12, 768, 12, 3072, 50257, 1024, architecture=gpt2, pad_id=None))
    for name, model in zip(WEIGHTS, models, strict=True):
        model.build()
        save_pretrained(model, folder / name)


def load(folder):
    """Seconds, and the MiB of the process before, at the peak and afterwards."""
    import tensorflow as tf
    from safetensors.numpy import load_file

    import tf_transformer

    tf.random.normal((4, 4))  # what TensorFlow allocates for its first operation
    tf_transformer.load  # noqa: B018  imported here, like everything that it needs
    reset_peak()
    before, start = memory("VmRSS"), time.perf_counter()
    model = tf_transformer.load(folder)
    seconds = time.perf_counter() - start
    assert model.count_params() == WEIGHTS[Path(folder).name]
    result = {
        "seconds": seconds,
        "before": before,
        "peak": memory("VmHWM"),
        "after": memory("VmRSS"),
    }
    start = time.perf_counter()
    arrays = load_file(Path(folder) / "model.safetensors")
    return {**result, "arrays_seconds": time.perf_counter() - start, "arrays": len(arrays)}
