"""A classifier whose texts leave early: `python -m benchmarks early_exit SET ARCHIVE MODEL`.

SET, ARCHIVE and MODEL are those of `fine_tuning`. Fine-tunes the model with and without exits,
with some seeds, chooses thresholds on the validation part, and compares accuracy on the test part
and time of the exported classifiers, measured in turn. Writes results/PROCESSOR/early_exit-SET.md
and .png.
"""

import tempfile
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.compression.classifier import fine_tuned_classifier, set_arguments
from benchmarks.compression.smaller_models import relative_times
from benchmarks.harness.report import speeds_folder, write_result

WISHES = {
    "no accuracy lost in validation": {"loss": 0.0},
    **{
        f"at most {share} % of the answers changed in validation": {"changed": share / 100}
        for share in (0.0, 0.3, 1.0, 2.0)
    },
    "half of the layers on average in validation": {"share": 0.5},
}


def main(parser, arguments):
    """Train, choose, measure, write."""
    set_arguments(parser)
    parser.add_argument("--trainings", type=int, default=3, help="with seeds from --seed on")
    options = parser.parse_args(arguments)
    trainings = []
    for seed in range(options.seed, options.seed + options.trainings):
        options.seed = seed
        trainings.append(train(options))
    first, *_ = trainings
    times = times_of(first, options.rounds)
    lines = ["| | accuracy | layers | time for 1 text | for 32 |", "|---" * 5 + "|"]
    for name in times[1]:
        rights, layers = zip(*(training.test[name] for training in trainings), strict=True)
        each = ", ".join(f"{right:.1%}" for right in rights)
        row = f"| {name} | {mean(rights):.2%} ({each}) | {mean(layers):.2f} |"
        lines.append(f"{row} {times[1][name]:.2f} | {times[32][name]:.2f} |")
    draw(first, options.set, speeds_folder() / f"early_exit-{options.set}.png")
    thresholds = ", ".join(
        f"{name}: {rule_text(rule)}" for name, rule in first.rules.items() if rule_text(rule)
    )
    data = first.data
    remark = (
        f"`{Path(options.model).name}`, {len(data.train):,} texts to train on, {len(data.test):,} "
        f"for the test, which gave accuracy and layers: means of the trainings, "
        f"accuracy of each in brackets. Time: the exported classifier of the first, texts to "
        f"classes, relative to the first line, medians of {options.rounds} rounds. Its thresholds: "
        f"{thresholds}."
    )
    plot = f"![Accuracy by layers](early_exit-{options.set}.png)"
    parts = [remark, "\n".join(lines), plot]
    write_result(f"early_exit-{options.set}", f"Leaving early, {options.set}", parts, "")


class Training(NamedTuple):
    """Train a model with exits and one without, with the same seed."""

    plain: object
    model: object
    tokenizer: object
    data: object
    settings: object
    rules: dict  # name -> ExitPoint of the validation part
    test: dict  # name -> (accuracy, layers) on the test part
    curve: list  # ExitPoint of each threshold on the test part


def train(options):
    """Train both, choose thresholds on the validation part, score them on the test part."""
    import numpy as np

    from tf_transformer.compression import choose_exit, exit_points
    from tf_transformer.training import text_batches

    plain, tokenizer, data, settings = fine_tuned_classifier(options)
    model, *_ = fine_tuned_classifier(options, "BertWithExits")
    validation = exit_points(model, text_batches(tokenizer, data.validation, settings))
    layers, best = model.config.num_hidden_layers, validation[0].accuracy
    rules = {"exits, all layers": validation[0]}
    for name, wish in WISHES.items():
        if "loss" in wish:
            wish = {"accuracy": best - wish["loss"]}
        elif "share" in wish:
            wish = {"layers": wish["share"] * layers}
        rules[name] = choose_exit(validation, **wish)
    thresholds = [point[:2] for point in validation]
    curve = exit_points(model, text_batches(tokenizer, data.test, settings), thresholds)
    tested = {point[:2]: (point.accuracy, point.layers) for point in curve}
    hits = [
        np.argmax(plain(x), -1) == np.asarray(y)
        for x, y in text_batches(tokenizer, data.test, settings)
    ]
    test = {"without exits": (np.concatenate(hits).mean(), layers)}
    test |= {name: tested[rule[:2]] for name, rule in rules.items()}
    print(test, flush=True)
    return Training(plain, model, tokenizer, data, settings, rules, test, curve)


def times_of(training, rounds):
    """Relative times of the exported classifiers: number of texts -> rule -> time."""
    import tensorflow as tf

    from tf_transformer.export import EarlyExitClassifier, TextClassifier

    def early(loaded, rule):
        patience = tf.constant(rule.patience or training.model.config.num_hidden_layers)
        entropy = tf.constant(rule.entropy)
        return lambda texts: loaded.classify_early(texts, patience, entropy)

    how = training.tokenizer, training.settings.max_length
    with tempfile.TemporaryDirectory() as folder:
        TextClassifier(training.plain, *how).save(f"{folder}/plain")
        EarlyExitClassifier(training.model, *how).save(f"{folder}/early")
        whole = tf.saved_model.load(f"{folder}/plain")
        loaded = tf.saved_model.load(f"{folder}/early")
        calls = {"without exits": whole.classify}
        calls |= {name: early(loaded, rule) for name, rule in training.rules.items()}
        return relative_times(calls, [text for text, _ in training.data.test], rounds)


def rule_text(point):
    """A threshold in words; "" for none."""
    if point.patience:
        return f"patience {point.patience}"
    return f"entropy {point.entropy:.3f}" if point.entropy else ""


def draw(training, title, path):
    """Accuracy against the mean number of layers, for both rules."""
    import matplotlib.pyplot as plt

    accuracy, layers = training.test["without exits"]
    _, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for label, style, some in (
        ("patience", "o-", [point for point in training.curve if point.patience]),
        ("entropy", "x--", [point for point in training.curve if point.entropy]),
    ):
        some = sorted(some, key=lambda point: point.layers)
        rows = [point.layers for point in some], [100 * point.accuracy for point in some]
        axes.plot(*rows, style, label=label)
    axes.plot([layers], [100 * accuracy], "s", label="without exits")
    axes.set_xlabel("layers for a text, mean")
    axes.set_ylabel(f"accuracy, %, {title}")
    axes.legend()
    plt.savefig(path)
