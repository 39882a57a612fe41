"""BLEU beside a keras-hub model: `python benchmarks/quality.py` writes results/quality.md."""

import argparse
import json
import statistics

from side_by_side import run, write_result

LIBRARIES = ("tf_transformer", "keras-hub")


def main():
    """Train both on the same split and budget, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--corpus", default="en-zh")
    options = parser.parse_args()
    lines = [
        "| layers of | seed | weights | BLEU | chrF | minutes | the closing sentences |",
        "|---|---|---|---|---|---|---|",
    ]
    bleu = {library: [] for library in LIBRARIES}
    for seed in range(1, options.seeds + 1):
        for library in LIBRARIES:
            output = run(library, "train_and_score.py", library, options.corpus, str(seed))
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
        f"The small preset on {options.corpus}, the whole test split "
        f"({scores['bleu_signature']}). Split, vocabulary, batches, schedule, loss, epochs and "
        "moving average are the same. Besides the layers there differ: keras-hub's drop attention "
        "weights too, its decoding may choose the padding token, and the preset was chosen with "
        "this library's layers.\n\n"
        f"Mean BLEU over the seeds (spread): {means}.\n\n"
    )
    write_result("quality", "BLEU beside keras-hub's layers", [text + "\n".join(lines)])


if __name__ == "__main__":
    main()
