"""Fine-tuned BERTs beside TF-IDF with logistic regression: `python benchmarks/fine_tuning.py ...`.

    python benchmarks/fine_tuning.py trec-6 ARCHIVE MODEL
    python benchmarks/fine_tuning.py zh-reviews ARCHIVE MODEL

ARCHIVE is what `load_labelled_texts` names, MODEL the folder of MiniLM or of the Chinese SimBERT.
SimBERT, which has read questions, is adapted first to the training texts by `tf-transformer
pretrain --start`. Three seeds, one after the other, each by `tf-transformer finetune`; the mean
goes into results/fine_tuning-SET.md. The settings of the baseline (features, C) are chosen on the
validation part, and so were those below; the test part was looked at in the end. scikit-learn gets
an environment of its own.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side import run, write_result

from tf_transformer.data import load_labelled_texts

# What differs from the settings of the commands.
ADAPTATION = {
    "zh-reviews": "--epochs 20 --learning-rate 5e-4 --lengths 16 24 32 48 64 96",
}
SETTINGS = {
    "trec-6": "--epochs 4",
    "zh-reviews": "--epochs 5 --learning-rate 4e-4 --max-length 192 --dropout 0.1 "
    "--pooler-activation linear",
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
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model, steps = options.model, {}
        if options.set in ADAPTATION:
            texts = [text for text, _ in load_labelled_texts(options.set, archive).train]
            (folder / "train.txt").write_text("\n\n".join(texts), "utf-8")
            arguments = (
                f"--start {model} --text {folder / 'train.txt'} --output {folder / 'adapted'}"
            )
            steps["adaptation"] = command("pretrain", f"{ADAPTATION[options.set]} {arguments}")
            model = folder / "adapted" / "model"
        results, seconds = [], []
        for seed in SEEDS:
            output = folder / str(seed)
            arguments = (
                f"--data {options.set} --archive {archive} --model {model} --output {output}"
            )
            seconds.append(
                command("finetune", f"{SETTINGS[options.set]} --seed {seed} {arguments}")
            )
            results.append(json.loads((output / "result.json").read_text("utf-8")))
            print(f"seed {seed}: {results[-1]['test_accuracy']}", file=sys.stderr, flush=True)
        steps["a fine-tuning"] = statistics.median(seconds)
    accuracies = [100 * result["test_accuracy"] for result in results]
    sizes = results[0]["data"]
    lines = [
        f"{sizes['train']:,} texts to train on, {sizes['validation']:,} for validation, "
        f"{sizes['test']:,} for the test; `finetune {SETTINGS[options.set]}`"
        + (f", after `pretrain {ADAPTATION[options.set]}`." if "adaptation" in steps else "."),
        "| | test accuracy |\n|---|---|\n"
        f"| fine-tuned, mean of {len(SEEDS)} seeds | {statistics.mean(accuracies):.1f} % "
        f"({', '.join(f'{a:.1f}' for a in accuracies)}) |\n"
        f"| TF-IDF of {baseline['features']}, logistic regression with C = {baseline['C']} | "
        f"{100 * baseline['test']:.1f} % |",
        f"Seconds: {', '.join(f'{name} {time:,.0f}' for name, time in steps.items())}.",
    ]
    title = f"Fine-tuning on {options.set}"
    write_result(f"fine_tuning-{options.set}", title, lines, setting="")


def command(name, arguments):
    """Run a command of the library; the seconds that it took."""
    started = time.perf_counter()
    program = "import sys; from tf_transformer.cli import main; sys.exit(main())"
    call = [sys.executable, "-c", program, name, *shlex.split(arguments)]
    subprocess.run(call, check=True, stdout=sys.stderr)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
