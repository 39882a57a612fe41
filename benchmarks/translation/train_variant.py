"""Train one variant and score it on held-out pairs.

`python -m benchmarks.translation.train_variant FOLDER SETTINGS`: SETTINGS are fields of `Preset` as
JSON, and the preset that they change. Writes FOLDER/result.json; a training that was interrupted
is resumed.
"""

import csv
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.translation.multi30k_run import ONE_CORE

LONGEST = 12  # tokens of either side in training, with the end: four of five pairs


def sizes(tokenizer, pairs):
    """Tokens of the longer side of each pair, with the end."""
    sources, targets = (tokenizer.encode(list(texts)) for texts in zip(*pairs, strict=True))
    return np.array([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)])


def between(tokenizer, pairs, low, high):
    """The pairs longer than `low` and at most as long as `high`."""
    found = zip(pairs, sizes(tokenizer, pairs), strict=True)
    return [pair for pair, size in found if low < size <= high]


def joined(tokenizer, pairs, count):
    """Texts of several sentences: each `count` pairs in turn become one, Chinese without spaces."""
    groups = [pairs[i : i + count] for i in range(0, len(pairs) - count + 1, count)]
    together = [
        (" ".join(source for source, _ in group), "".join(target for _, target in group))
        for group in groups
    ]
    return between(tokenizer, together, 2 * LONGEST, 4 * LONGEST)


def loss(model, tokenizer, pairs):
    """Nats per token, with the right tokens before it."""
    import tensorflow as tf

    from tf_transformer.data import BucketedBatches

    sources, targets = (tokenizer.encode(list(texts)) for texts in zip(*pairs, strict=True))
    batches = BucketedBatches(
        sources,
        targets,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=(LONGEST, 2 * LONGEST, 4 * LONGEST),
        tokens_per_batch=4096,
    )
    total = count = 0
    for inputs, labels in batches.epoch(0):
        logits = model(tuple(map(tf.constant, inputs)), training=False)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        total += float(tf.reduce_sum(tf.where(labels != 0, each, 0.0)))
        count += np.count_nonzero(labels)
    return total / count


def ranges(tokenizer, pairs):
    """Return held-out pairs as long as in training, up to twice as long, and up to four times.

    Hardly any pair is four times as long: these are joined from pairs of training's length.
    """
    short = between(tokenizer, pairs, 0, LONGEST)
    together = [pair for count in (3, 4, 5) for pair in joined(tokenizer, short, count)]
    return {"": short, "2x_": between(tokenizer, pairs, LONGEST, 2 * LONGEST), "4x_": together}


def main(folder, settings):
    """Train and score."""
    os.environ.update(ONE_CORE)  # before TensorFlow is imported
    import keras

    from tf_transformer import GraphBPE, Tokenizer, Translator
    from tf_transformer.data import PairSource, group_references, split_pairs
    from tf_transformer.data.files import replacing
    from tf_transformer.export import translate_texts
    from tf_transformer.training import TrainingRun, get_preset, score_translations

    class EpochClock(keras.callbacks.Callback):
        """Adds the time of an epoch, with its validation, to history.csv, which a resume keeps."""

        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            logs["seconds"] = time.perf_counter() - self.start

    class ShortRun(TrainingRun):
        """A run that sees no long pair."""

        def batches(self, tokenizer, pairs, short_repeats=1):
            short = between(tokenizer, pairs, 0, LONGEST)
            return super().batches(tokenizer, short, short_repeats)

    changes = json.loads(settings)
    preset = get_preset(changes.pop("preset")).with_changes(changes)
    run = ShortRun(folder, PairSource(corpus="en-zh"), preset)
    # The same test split, which stays unseen, with a larger share of the rest held out.
    run.split = split_pairs(run.source.load(), test_share=0.04, validation_share=0.09)
    model = run.train([EpochClock()])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tokenizer = Tokenizer.load(run.tokenizer_path)
    translator = Translator(model, GraphBPE.from_file(run.tokenizer_path))
    trained = between(tokenizer, run.split.train, 0, LONGEST)
    tokens = sum(map(len, tokenizer.encode([target for _, target in trained]))) + len(trained)
    with open(run.folder / "history.csv", encoding="utf-8") as file:
        seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    scores = {
        "weights": model.count_params(),
        "tokens_per_second": tokens / min(seconds),  # other work on the machine only slows it
        "peak_mib": peak,
    }
    for prefix, pairs in ranges(tokenizer, run.split.validation).items():
        sources, references = group_references(pairs)
        translations = translate_texts(translator, sources)
        found = score_translations(translations, references, run.source.target_language)
        scores[f"{prefix}bleu"] = found["bleu"]
        scores[f"{prefix}loss"] = loss(model, tokenizer, pairs)
        scores[f"{prefix}sentences"] = len(sources)
    with replacing(Path(folder) / "result.json") as beside:
        beside.write_text(json.dumps(scores, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
