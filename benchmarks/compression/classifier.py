"""A fine-tuned classifier pruned and in int8: `python -m benchmarks classifier SET ARCHIVE MODEL`.

SET, ARCHIVE and MODEL are those of `fine_tuning`. Fine-tunes the model, or takes that of `--tuned`,
removes more and more heads by each measure of importance (accuracy on the validation part: the
curve), removes half of the heads and trains again, rounds to int8, and compares accuracy on the
test part, size and time of the exported classifiers, measured in turn. Writes
results/PROCESSOR/classifier-SET.md and .png.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.report import speeds_folder, write_result

MEASURES = ("gradient", "ablation", "confidence")
SHARES = tuple(n / 12 for n in range(12))
SEEN = 256  # training texts that measure importance and calibrate int8
EPOCHS = {"trec-6": 4, "zh-reviews": 5}


def main(parser, arguments):
    """Train, prune, round, measure, write."""
    set_arguments(parser)
    set_tuned_argument(parser)
    options = parser.parse_args(arguments)
    from tf_transformer.compression import prune_gradually, quantized
    from tf_transformer.training import FineTuning, fine_tune, text_batches

    model, tokenizer, data, settings = fine_tuned_classifier(options, tuned=options.tuned)
    seen = list(text_batches(tokenizer, data.train[:SEEN], settings))
    validation = list(text_batches(tokenizer, data.validation, settings))

    def accuracy(model, batches):
        hits = [np.argmax(model(x), -1) == np.asarray(y) for x, y in batches]
        return 100 * np.concatenate(hits).mean()

    curve = head_curve(model, seen, lambda model: accuracy(model, validation))
    draw(curve, options.set, speeds_folder() / f"classifier-{options.set}.png")

    def train(epochs):
        again = FineTuning(epochs=epochs, seed=options.seed, learning_rate=5e-5)
        return lambda smaller: fine_tune(smaller, tokenizer, data, again, verbose=2)

    half = prune_gradually(model, seen, train(3), heads=0.5)
    slowly = prune_gradually(model, seen, train(1), heads=0.5, steps=3)
    models = {
        "fine-tuned": model,
        "half of the heads at once, 3 epochs": half,
        "half of the heads in 3 steps, 1 epoch each": slowly,
        "int8, dynamic": quantized(model),
        "int8, static": quantized(model, seen),
        "half of the heads in 3 steps, int8, static": quantized(slowly, seen),
    }
    test = list(text_batches(tokenizer, data.test, settings))
    accuracies = {name: accuracy(one, test) for name, one in models.items()}
    texts = [text for text, _ in data.test]
    lines = table(models, accuracies, tokenizer, settings.max_length, texts, options.rounds)
    remark = (
        f"`{Path(options.model).name}`, {len(data.train):,} texts to train on, "
        f"{len(data.test):,} for the test; seed {options.seed}. Importance, calibration: {SEEN} "
        f"training texts. Time: the exported classifier, texts to classes, relative to the first "
        f"line, medians of {options.rounds} rounds."
    )
    plot = f"![Accuracy by heads removed](classifier-{options.set}.png)"
    parts = [remark, lines, "## Without training again", curve_table(curve), plot]
    write_result(f"classifier-{options.set}", f"A smaller classifier, {options.set}", parts, "")


def set_arguments(parser):
    """The arguments of benchmarks that fine-tune a classifier."""
    parser.add_argument("set", choices=EPOCHS, help="of texts")
    parser.add_argument("archive", help="the file of the texts")
    parser.add_argument("model", help="a folder with a pretrained BERT")
    parser.add_argument("--seed", type=int, default=1, help="of training")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds")


def set_tuned_argument(parser):
    """The argument that saves `fine_tuned_classifier` the training."""
    parser.add_argument(
        "--tuned",
        type=Path,
        help="what `tf-transformer finetune` wrote for the same SET and seed, instead of training",
    )


def fine_tuned_classifier(options, kind="BertForSequenceClassification", tuned=None):
    """Fine-tune, or read the folder `tuned`: `(model, tokenizer, data, settings)`."""
    import keras

    from tf_transformer import bert
    from tf_transformer.data import load_labelled_texts
    from tf_transformer.training import FineTuning, fine_tune

    data = load_labelled_texts(options.set, options.archive)
    tokenizer = bert.read_tokenizer(options.model)
    settings = FineTuning(epochs=EPOCHS[options.set], seed=options.seed)
    if tuned is not None:
        model = getattr(bert, kind).from_pretrained(tuned / "model", unpad=True)
        return model, tokenizer, data, settings
    keras.utils.set_random_seed(options.seed)
    model = getattr(bert, kind).from_pretrained(
        options.model, labels=data.labels, new_head=True, unpad=True
    )
    fine_tune(model, tokenizer, data, settings, verbose=2)
    return model, tokenizer, data, settings


def head_curve(model, seen, score):
    """The score with a share of the heads removed, without training: measure -> list."""
    from tf_transformer.compression import head_importance, least_important, prune_heads

    curve = {}
    for measure in MEASURES:
        importance = head_importance(model, seen, by=measure)
        curve[measure] = [
            score(prune_heads(model, least_important(importance, share)) if share else model)
            for share in SHARES
        ]
        print(measure, [f"{value:.1f}" for value in curve[measure]], flush=True)
    return curve


def curve_table(curve):
    """Markdown: one column for each share."""
    lines = ["| heads removed | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"]
    lines.append("|---" * (len(SHARES) + 1) + "|")
    for measure, values in curve.items():
        lines.append(f"| by {measure} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    return "\n".join(lines)


def draw(curve, title, path):
    """Score against the share of heads removed."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for (measure, values), style in zip(curve.items(), ("o-", "x--", "+:"), strict=True):
        axes.plot([100 * share for share in SHARES], values, style, label=f"by {measure}")
    axes.set_xlabel("heads removed, %")
    axes.set_ylabel(f"accuracy, %, {title}")
    axes.legend()
    plt.savefig(path)


def table(models, accuracies, tokenizer, max_length, texts, rounds):
    """Markdown: accuracy, weights, size of the files, time for 1 and 32 texts."""
    import tensorflow as tf

    from tf_transformer.export import TextClassifier

    loaded, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for n, (name, model) in enumerate(models.items()):
            TextClassifier(model, tokenizer, max_length).save(f"{folder}/{n}")
            files = Path(folder, str(n), "variables").iterdir()
            sizes[name] = sum(file.stat().st_size for file in files) / 2**20
            loaded[name] = tf.saved_model.load(f"{folder}/{n}")
        calls = {name: classifier.classify for name, classifier in loaded.items()}
        times = relative_times(calls, texts, rounds)
    lines = ["| | accuracy | weights | MiB | time for 1 text | for 32 |", "|---" * 6 + "|"]
    for name, model in models.items():
        lines.append(
            f"| {name} | {accuracies[name]:.1f} % | {model.count_params():,} | {sizes[name]:.1f} | "
            f"{times[1][name]:.2f} | {times[32][name]:.2f} |"
        )
    return "\n".join(lines)


def relative_times(calls, texts, rounds):
    """Time batches of 1 and 32 texts in turn: {rows: {name: time relative to the first}}."""
    import tensorflow as tf

    times = {}
    for rows in (1, 32):
        starts = range(0, max(rows * 2, 32), rows)
        batches = [tf.constant(texts[start : start + rows]) for start in starts]
        seconds = {name: [] for name in calls}
        for turn in range(rounds + 2):
            for name, call in calls.items():
                start = time.perf_counter()
                for batch in batches:
                    call(batch)
                if turn > 1:
                    seconds[name].append((time.perf_counter() - start) / len(batches))
        first = seconds[next(iter(calls))]
        times[rows] = {
            name: statistics.median(a / b for a, b in zip(some, first, strict=True))
            for name, some in seconds.items()
        }
        print(f"{rows}: {1000 * statistics.median(first):.2f} ms", flush=True)
    return times
