"""A fine-tuned classifier pruned and in int8: `python -m benchmarks classifier SET ARCHIVE MODEL`.

SET, ARCHIVE and MODEL are those of `fine_tuning`. Fine-tunes the model, or takes that of `--tuned`,
removes more and more heads by each measure of importance (accuracy on the validation part: the
curve), removes half of the heads and trains again, with and without the predictions of the whole
model as soft targets, rounds to int8, and compares accuracy on the test part, size and time of the
exported classifiers, measured in turn. Writes results/PROCESSOR/classifier-SET.md and .png.
"""

import json
from pathlib import Path

import numpy as np

from benchmarks.compression.smaller_models import curve_table, draw, head_curve, table
from benchmarks.harness.report import speeds_folder, write_result

SEEN = 256  # training texts that measure importance and calibrate int8
EPOCHS = {"trec-6": 4, "zh-reviews": 5}


def main(parser, arguments):
    """Train, prune, round, measure, write."""
    set_arguments(parser)
    set_tuned_argument(parser)
    options = parser.parse_args(arguments)
    from tf_transformer.compression import Distiller, prune_gradually, quantized
    from tf_transformer.export import TextClassifier
    from tf_transformer.training import FineTuning, fine_tune, text_batches

    model, tokenizer, data, settings = fine_tuned_classifier(options, tuned=options.tuned)
    seen = list(text_batches(tokenizer, data.train[:SEEN], settings))
    validation = list(text_batches(tokenizer, data.validation, settings))

    def accuracy(model, batches):
        hits = [np.argmax(model(x), -1) == np.asarray(y) for x, y in batches]
        return 100 * np.concatenate(hits).mean()

    curve = head_curve(model, seen, lambda model: accuracy(model, validation))
    plot = f"classifier-{options.set}.png"
    draw(curve, f"accuracy, %, {options.set}", speeds_folder() / plot)

    def train(epochs):
        again = FineTuning(epochs=epochs, seed=options.seed, learning_rate=5e-5)
        return lambda smaller: fine_tune(smaller, tokenizer, data, again, verbose=2)

    def imitate(smaller):
        train(1)(Distiller(smaller, model, temperature=2.0))
        smaller.compile(loss=model.loss)  # the next step measures importance

    half = prune_gradually(model, seen, train(3), heads=0.5)
    slowly = prune_gradually(model, seen, train(1), heads=0.5, steps=3)
    distilled = prune_gradually(model, seen, imitate, heads=0.5, steps=3)
    models = {
        "fine-tuned": model,
        "half of the heads at once, 3 epochs": half,
        "half of the heads in 3 steps, 1 epoch each": slowly,
        "the same, distilled": distilled,
        "int8, dynamic": quantized(model),
        "int8, static": quantized(model, seen),
        "half of the heads, distilled, int8, static": quantized(distilled, seen),
    }
    test = list(text_batches(tokenizer, data.test, settings))
    accuracies = {name: f"{accuracy(one, test):.1f} %" for name, one in models.items()}
    texts = [text for text, _ in data.test]

    def save(model, folder):
        TextClassifier(model, tokenizer, settings.max_length).save(folder)

    lines = table(models, {"accuracy": accuracies}, save, "classify", texts, options.rounds)
    remark = (
        f"`{Path(options.model).name}`, {len(data.train):,} texts to train on, "
        f"{len(data.test):,} for the test; seed {settings.seed}. Importance, calibration: {SEEN} "
        f"training texts. Time: the exported classifier, texts to classes, relative to the first "
        f"line, medians of {options.rounds} rounds."
    )
    parts = [remark, lines, "## Without training again", curve_table(curve)]
    parts.append(f"![Accuracy by heads removed]({plot})")
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
        help="what `tf-transformer finetune` wrote for the same SET, instead of training",
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
        if model.config.labels != data.labels:
            raise ValueError(f"--tuned: expected a model for {options.set}, got {tuned}.")
        result = json.loads((tuned / "result.json").read_text("utf-8"))
        settings = FineTuning(**result["settings"])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model, tokenizer, data, settings
    keras.utils.set_random_seed(options.seed)
    model = getattr(bert, kind).from_pretrained(
        options.model, labels=data.labels, new_head=True, unpad=True
    )
    fine_tune(model, tokenizer, data, settings, verbose=2)
    return model, tokenizer, data, settings
