"""BLEU compared with a model of keras-hub's layers: `python -m benchmarks quality`.

Writes results/scores/quality.md.
"""

import json
import statistics

from benchmarks.harness.environments import run
from benchmarks.harness.report import APART, SCORES, write_result

LIBRARIES = ("tf_transformer", "keras-hub")
PROGRAM = "benchmarks.translation.train_and_score"


def main(parser, arguments):
    """Train both on the same split for the same number of epochs, seed by seed."""
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each library")
    parser.add_argument("--corpus", default="en-zh", help="of `load_corpus`")
    options = parser.parse_args(arguments)
    lines = [
        "| layers of | seed | weights | BLEU | chrF | minutes | the closing sentences |",
        "|---|---|---|---|---|---|---|",
    ]
    bleu = {library: [] for library in LIBRARIES}
    for seed in range(1, options.seeds + 1):
        for library in LIBRARIES:
            output = run(library, PROGRAM, library, options.corpus, str(seed))
            scores = json.loads(output.splitlines()[-1])
            bleu[library].append(scores["bleu"])
            lines.append(
                f"| {library} | {seed} | {scores['weights']:,} | {scores['bleu']:.2f} | "
                f"{scores['chrf']:.2f} | {scores['seconds'] / 60:.1f} | "
                f"{' '.join(scores['closing'])} |"
            )
            print(lines[-1], flush=True)
    means = "; ".join(
        f"{library} {statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
        for library, values in bleu.items()
    )
    text = (
        f"The paper's model with the settings of the small preset on {options.corpus}, the whole "
        f"test split "
        f"({scores['bleu_signature']}). Split, vocabulary, batches, schedule, loss, epochs and "
        "moving average are the same. Other differences than the layers: keras-hub also drops "
        "attention weights, its decoding may choose the padding token, and the preset was chosen "
        "with this library's layers.\n\n"
        f"Mean BLEU over the seeds (range): {means}.\n\n"
    )
    write_result(
        "quality",
        "BLEU, compared with keras-hub's layers",
        [text + "\n".join(lines)],
        APART,
        SCORES,
    )
