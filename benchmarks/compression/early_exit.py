"""A classifier whose texts leave early: `python -m benchmarks early_exit SET ARCHIVE MODEL`.

SET, ARCHIVE and MODEL are those of `fine_tuning`. Fine-tunes the model with and without exits,
chooses thresholds on the validation part, and compares accuracy on the test part and time of the
exported classifiers, measured in turn. Writes results/PROCESSOR/early_exit-SET.md and .png.
"""

import tempfile
from pathlib import Path

from benchmarks.compression.classifier import (
    fine_tuned_classifier,
    relative_times,
    set_arguments,
)
from benchmarks.harness.report import speeds_folder, write_result

WISHES = ({"loss": 0.0}, {"changed": 0.3}, {"changed": 1.0}, {"changed": 2.0}, {"share": 0.5})


def main(parser, arguments):
    """Train, choose, measure, write."""
    set_arguments(parser)
    options = parser.parse_args(arguments)
    import numpy as np
    import tensorflow as tf

    from tf_transformer.compression import choose_exit, exit_points
    from tf_transformer.export import EarlyExitClassifier, TextClassifier
    from tf_transformer.training import text_batches

    plain, tokenizer, data, settings = fine_tuned_classifier(options)
    model, *_ = fine_tuned_classifier(options, "BertWithExits")
    validation = exit_points(model, text_batches(tokenizer, data.validation, settings))
    layers, best = model.config.num_hidden_layers, validation[0].accuracy
    rules = {"exits, all layers": validation[0]}
    for wish in WISHES:
        if "loss" in wish:
            chosen = choose_exit(validation, accuracy=best - wish["loss"] / 100)
            name = "no accuracy lost in validation"
        elif "changed" in wish:
            chosen = choose_exit(validation, changed=wish["changed"] / 100)
            name = f"at most {wish['changed']} % of the answers changed in validation"
        else:
            chosen = choose_exit(validation, layers=wish["share"] * layers)
            name = f"at most {wish['share'] * layers:.0f} layers on average in validation"
        rules[f"{name}: {rule_text(chosen)}"] = chosen
    thresholds = [point[:2] for point in validation]
    test = exit_points(model, text_batches(tokenizer, data.test, settings), thresholds)
    tested = {point[:2]: point for point in test}
    hits = [
        np.argmax(plain(x), -1) == np.asarray(y)
        for x, y in text_batches(tokenizer, data.test, settings)
    ]
    accuracy = np.concatenate(hits).mean()

    def early(loaded, rule):
        patience, entropy = tf.constant(rule.patience or layers), tf.constant(rule.entropy)
        return lambda texts: loaded.classify_early(texts, patience, entropy)

    with tempfile.TemporaryDirectory() as folder:
        TextClassifier(plain, tokenizer, settings.max_length).save(f"{folder}/plain")
        EarlyExitClassifier(model, tokenizer, settings.max_length).save(f"{folder}/early")
        whole = tf.saved_model.load(f"{folder}/plain")
        loaded = tf.saved_model.load(f"{folder}/early")
        calls = {"without exits": whole.classify}
        calls |= {name: early(loaded, rule) for name, rule in rules.items()}
        texts = [text for text, _ in data.test]
        times = relative_times(calls, texts, options.rounds)
    lines = ["| | accuracy | layers | time for 1 text | for 32 |", "|---" * 5 + "|"]
    for name in calls:
        point = tested[rules[name][:2]] if name in rules else None
        right, mean = (point.accuracy, point.layers) if point else (accuracy, layers)
        row = f"| {name} | {right:.1%} | {mean:.2f} |"
        lines.append(f"{row} {times[1][name]:.2f} | {times[32][name]:.2f} |")
    draw(test, accuracy, layers, options.set, speeds_folder() / f"early_exit-{options.set}.png")
    remark = (
        f"`{Path(options.model).name}`, {len(data.train):,} texts to train on, {len(data.test):,} "
        f"for the test, which gave accuracy and layers; seed {options.seed}. Time: the exported "
        f"classifier, texts to classes, relative to the first line, medians of {options.rounds} "
        f"rounds."
    )
    plot = f"![Accuracy by layers](early_exit-{options.set}.png)"
    parts = [remark, "\n".join(lines), plot]
    write_result(f"early_exit-{options.set}", f"Leaving early, {options.set}", parts, "")


def rule_text(point):
    """A threshold in words."""
    if point.patience:
        return f"patience {point.patience}"
    return f"entropy {point.entropy:.3f}" if point.entropy else "no rule"


def draw(points, accuracy, layers, title, path):
    """Accuracy against the mean number of layers, for both rules."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for label, style, some in (
        ("patience", "o-", [point for point in points if point.patience]),
        ("entropy", "x--", [point for point in points if point.entropy]),
    ):
        some = sorted(some, key=lambda point: point.layers)
        rows = [point.layers for point in some], [100 * point.accuracy for point in some]
        axes.plot(*rows, style, label=label)
    axes.plot([layers], [100 * accuracy], "s", label="without exits")
    axes.set_xlabel("layers for a text, mean")
    axes.set_ylabel(f"accuracy, %, {title}")
    axes.legend()
    plt.savefig(path)
