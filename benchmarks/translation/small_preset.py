"""The small preset with several seeds: `python -m benchmarks small_preset`.

Trains, scores on the whole test split and translates the closing sentences and "Hello!", as
`tf-transformer train` does. Writes results/scores/small_preset.md.
"""

import concurrent.futures
import json
import statistics
import subprocess
import sys

from benchmarks.harness.report import SCORES, write_result

PROGRAM = "benchmarks.translation.train_and_score"


def scored(seed):
    """The scores of one training."""
    command = [sys.executable, "-m", PROGRAM, "preset", "en-zh", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(parser, arguments):
    """Train, write the table."""
    parser.add_argument("--seeds", type=int, default=3, help="trainings")
    parser.add_argument("--at-once", type=int, default=1, help="trainings; 2 make times useless")
    options = parser.parse_args(arguments)
    lines = [
        "| seed | weights | BLEU | chrF | minutes | the closing sentences, Hello! |",
        "|---|---|---|---|---|---|",
    ]
    bleu = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        seeds = range(1, options.seeds + 1)
        for seed, scores in zip(seeds, pool.map(scored, seeds), strict=True):
            bleu.append(scores["bleu"])
            lines.append(
                f"| {seed} | {scores['weights']:,} | {scores['bleu']:.2f} | {scores['chrf']:.2f} | "
                f"{scores['seconds'] / 60:.1f} | {' '.join(scores['closing'])} |"
            )
            print(lines[-1], flush=True)
    text = (
        f"English-Chinese, the whole test split ({scores['bleu_signature']}), greedy. Mean BLEU "
        f"{statistics.mean(bleu):.2f} ({min(bleu):.2f} to {max(bleu):.2f})."
    )
    parts = [text, "\n".join(lines)]
    write_result("small_preset", "The small preset", parts, "", SCORES)
