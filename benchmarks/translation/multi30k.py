"""English to German on Multi30k with Transformer-Tiny: `python -m benchmarks multi30k DATA`.

DATA is the folder of `train.en.gz`, `val.de.gz`, `test_2016_flickr.en.gz` and so on. Trains each
seed in its own process on one core, averages its last checkpoints, decodes with beam 5, and scores
as Wu et al. 2021 (arXiv 2105.14462) do and on detokenized text. After an interruption (Ctrl-C) the
same command resumes the training. A command with other options, more epochs for example, resumes it
too, and the table lists all calls. Nothing is chosen by the scores on the test sets. Writes
results/scores/multi30k.md. Needs `pip install -e ".[bench,train]"`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
from pathlib import Path

from benchmarks.harness.report import SCORES, write_result
from benchmarks.translation import multi30k_texts as texts
from benchmarks.translation.multi30k_run import run_seed

REMARK = """\
"Tokenized": BLEU of Moses' tokens in lower case, as in the paper ({tokenized}), which reports 41.02
and 33.36. "Detokenized": sacreBLEU of texts in lower case against the unchanged references
({detokenized}). Mean over the seeds: {means}.
Calls, each of which resumes where the previous one stopped: {calls}.
"""


def main(parser, arguments):
    """Train and score every seed, write the table."""
    parser.add_argument("data", type=Path, help="the folder of Multi30k's .gz files")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/multi30k"),
        help="gets a folder for each seed",
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2], help="one training each, in parallel"
    )
    parser.add_argument("--vocabulary", type=int, default=9700, help="tokens of both languages")
    parser.add_argument(
        "--epochs",
        type=int,
        default=98,
        help="of all calls together; the learning rate is 0 after the last one, and rises again "
        "if a later call has more",
    )
    parser.add_argument(
        "--dropout",
        type=float,
        nargs="+",
        default=[0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3],
        help="one rate for each part of the training, all parts of equal length",
    )
    parser.add_argument(
        "--beta-2",
        type=float,
        default=0.999,
        help="of Adam; the paper's 0.98 is for batches 16 times as large",
    )
    parser.add_argument("--average", type=int, default=10, help="number of checkpoints to average")
    parser.add_argument("--r-drop", type=float, default=0.0, help="weight of R-Drop's divergence")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)  # a seed, in this process
    options = parser.parse_args(arguments)
    if options.only is not None:
        run_seed(options, options.only)
        return
    texts.check_files(options.data)
    failed = run_in_parallel(options.seeds, arguments)
    if failed:
        sys.exit(f"seeds {failed}: stopped. The same command resumes them.")
    scores = [
        json.loads((options.output / f"seed-{seed}" / "scores.json").read_text("utf-8"))
        for seed in options.seeds
    ]
    name = "multi30k-r-drop" if options.r_drop else "multi30k"
    write_result(
        name, "Multi30k, English to German", table(scores), "One core for each seed.", SCORES
    )


def run_in_parallel(seeds, arguments):
    """Run each seed in a process, prefix its output with the seed, and return the failed seeds."""
    command = [sys.executable, "-m", "benchmarks", "multi30k", *arguments, "--only"]
    processes = {
        seed: subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in seeds
    }

    def show(seed, lines):
        for line in lines:
            print(f"seed {seed}: {line}", end="", flush=True)

    threads = [
        threading.Thread(target=show, args=(seed, process.stdout))
        for seed, process in processes.items()
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # the processes get it too, and write their checkpoints
            continue
    return [seed for seed, process in processes.items() if process.wait()]


def table(scores):
    """Markdown: a row for each seed, and the means with their range."""
    columns = [(name, kind) for name in texts.TESTS for kind in ("tokenized", "detokenized")]
    lines = [
        "| seed | weights | epochs | validation | "
        + " | ".join(f"{name}, {kind}" for name, kind in columns)
        + " |",
        "|---" * (4 + len(columns)) + "|",
    ]
    for row in scores:
        found = " | ".join(f"{row[name][kind]['bleu']:.2f}" for name, kind in columns)
        lines.append(
            f"| {row['seed']} | {row['weights']:,} | {row['epochs']} | {row['validation']:.2f} | "
            f"{found} |"
        )
    means = []
    for name, kind in columns:
        values = [row[name][kind]["bleu"] for row in scores]
        spread = f"{min(values):.2f} to {max(values):.2f}"
        means.append(f"{name}, {kind} {statistics.mean(values):.2f} ({spread})")
    first = scores[0]["test 2016"]
    remark = REMARK.format(
        means="; ".join(means),
        calls="; ".join(f"`{call}`" for call in scores[0]["calls"]),
        **{kind: f"`{first[kind]['signature']}`" for kind in first},
    )
    return [remark.strip(), "\n".join(lines)]
