"""BLEU beside a keras-hub model: `python benchmarks/quality.py` writes results/quality.md."""

import argparse
import json

from side_by_side import run, write_result


def main():
    """Train both on the same split and budget, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--corpus", default="en-zh")
    options = parser.parse_args()
    lines = [
        "| layers of | seed | weights | BLEU | chrF | training, minutes |",
        "|---|---|---|---|---|---|",
    ]
    for seed in range(1, options.seeds + 1):
        for library in ("tf_transformer", "keras-hub"):
            output = run(library, "train_and_score.py", library, options.corpus, str(seed))
            scores = json.loads(output.splitlines()[-1])
            lines.append(
                f"| {library} | {seed} | {scores['weights']:,} | {scores['bleu']} | "
                f"{scores['chrf']} | {scores['seconds'] / 60:.1f} |"
            )
            print(lines[-1], flush=True)
    text = (
        f"The small preset on {options.corpus}, the whole test split "
        f"({scores['bleu_signature']}). Split, vocabulary, batches, schedule, loss, epochs, "
        "moving average and greedy decoding are the same; only the layers differ.\n\n"
    )
    write_result("quality", "BLEU beside keras-hub's layers", [text + "\n".join(lines)])


if __name__ == "__main__":
    main()
