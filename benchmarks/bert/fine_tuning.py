"""Fine-tuned BERTs compared with TF-IDF and logistic regression.

    python -m benchmarks fine_tuning trec-6 ARCHIVE MODEL
    python -m benchmarks fine_tuning zh-reviews ARCHIVE MODEL

ARCHIVE is the file that `load_labelled_texts` names, MODEL the folder of MiniLM or of the Chinese
SimBERT. SimBERT, which was trained on questions, is first adapted to the training texts with
`tf-transformer pretrain --start`. Three seeds, one after the other, each with `tf-transformer
finetune`; their mean goes into results/scores/fine_tuning-SET.md. The settings of the baseline
(features, C) are chosen on the validation part, and so were those of the fine-tuning. The test part
was used only at the end. scikit-learn runs in its own environment.
"""

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.environments import run
from benchmarks.harness.report import SCORES, write_result
from tf_transformer.data import load_labelled_texts

# Options that differ from the defaults of the commands.
ADAPTATION = {
    "zh-reviews": "--epochs 20 --learning-rate 5e-4 --lengths 16 24 32 48 64 96",
}
SETTINGS = {
    "trec-6": "--epochs 4",
    "zh-reviews": "--epochs 5 --learning-rate 4e-4 --max-length 192 --dropout 0.1 "
    "--pooler-activation linear",
}
SEEDS = (1, 2, 3)
TFIDF = "benchmarks.bert.peers.tfidf"


def main(parser, arguments):
    """Train, score, write."""
    parser.add_argument("set", choices=SETTINGS, help="of texts")
    parser.add_argument("archive", help="the file of the texts")
    parser.add_argument("model", help="a folder with a pretrained BERT")
    options = parser.parse_args(arguments)
    archive = Path(options.archive).resolve()
    baseline = json.loads(run("scikit-learn", TFIDF, options.set, str(archive)))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model, steps = options.model, {}
        if options.set in ADAPTATION:
            texts = [text for text, _ in load_labelled_texts(options.set, archive).train]
            (folder / "train.txt").write_text("\n\n".join(texts), "utf-8")
            settings = (
                f"--start {model} --text {folder / 'train.txt'} --output {folder / 'adapted'}"
            )
            steps["adaptation"] = command("pretrain", f"{ADAPTATION[options.set]} {settings}")
            model = folder / "adapted" / "model"
        results, seconds = [], []
        for seed in SEEDS:
            output = folder / str(seed)
            settings = f"--data {options.set} --archive {archive} --model {model} --output {output}"
            seconds.append(command("finetune", f"{SETTINGS[options.set]} --seed {seed} {settings}"))
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
    write_result(f"fine_tuning-{options.set}", title, lines, "", SCORES)


def command(name, settings):
    """Run a command of the library and return the seconds it took."""
    started = time.perf_counter()
    program = "import sys; from tf_transformer.cli import main; sys.exit(main())"
    call = [sys.executable, "-c", program, name, *shlex.split(settings)]
    subprocess.run(call, check=True, stdout=sys.stderr)
    return time.perf_counter() - started
