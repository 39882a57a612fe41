"""Fine-tuned BERTs beside TF-IDF with logistic regression: `python benchmarks/fine_tuning.py ...`.

    python benchmarks/fine_tuning.py trec-6 ARCHIVE MODEL
    python benchmarks/fine_tuning.py zh-reviews ARCHIVE MODEL

ARCHIVE is what `load_labelled_texts` names, MODEL the folder of MiniLM or of the Chinese SimBERT.
Three seeds, one after the other, each by `tf-transformer finetune`; the mean goes into
results/fine_tuning-SET.md. The settings of the baseline (features, C) are chosen on the validation
part, and so were those below; the test part was looked at in the end. scikit-learn gets an
environment of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side import run, write_result

# What differs from `FineTuning`'s own settings.
SETTINGS = {
    "trec-6": ["--epochs", "4"],
    "zh-reviews": ["--epochs", "3", "--pooler-activation", "linear", "--dropout", "0.1"],
}
SEEDS = (1, 2, 3)


def main():
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=SETTINGS)
    parser.add_argument("archive")
    parser.add_argument("model")
    options = parser.parse_args()
    archive = Path(options.archive).resolve()
    baseline = json.loads(run("scikit-learn", "tfidf.py", options.set, str(archive)))
    results, seconds = [], []
    for seed in SEEDS:
        started = time.perf_counter()
        results.append(fine_tuned(options.set, archive, options.model, seed))
        seconds.append(time.perf_counter() - started)
        print(f"seed {seed}: {results[-1]['test_accuracy']}", file=sys.stderr, flush=True)
    accuracies = [100 * result["test_accuracy"] for result in results]
    sizes = results[0]["data"]
    lines = [
        f"{sizes['train']:,} texts to train on, {sizes['validation']:,} for validation, "
        f"{sizes['test']:,} for the test; settings {results[0]['settings']}.",
        "| | test accuracy |\n|---|---|\n"
        f"| fine-tuned, mean of {len(SEEDS)} seeds | {statistics.mean(accuracies):.1f} % "
        f"({', '.join(f'{a:.1f}' for a in accuracies)}) |\n"
        f"| TF-IDF of {baseline['features']}, logistic regression with C = {baseline['C']} | "
        f"{100 * baseline['test']:.1f} % |",
        f"The whole command took {statistics.median(seconds):,.0f} s (median).",
    ]
    title = f"Fine-tuning on {options.set}"
    write_result(f"fine_tuning-{options.set}", title, lines, setting="")


def fine_tuned(name, archive, model, seed):
    """What `tf-transformer finetune` says of one training."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "run"
        program = "import sys; from tf_transformer.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "finetune", *SETTINGS[name], "--output", output]
        command += ["--data", name, "--archive", archive, "--model", model, "--seed", str(seed)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return json.loads((output / "result.json").read_text("utf-8"))


if __name__ == "__main__":
    main()
