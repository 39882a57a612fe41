"""Train one variant and score it on held-out pairs.

`python -m benchmarks.translation.train_variant FOLDER SETTINGS`: SETTINGS are fields of `Preset` as
JSON, and the preset that they change. Writes FOLDER/result.json; a training that was interrupted
goes on.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer import GraphBPE, Tokenizer, Translator
from tf_transformer.data import BucketedBatches, PairSource, group_references, split_pairs
from tf_transformer.data.replacing import replacing
from tf_transformer.export import translate_texts
from tf_transformer.training import TrainingRun, get_preset, score_translations


def by_length(tokenizer, pairs, longest):
    """The held-out pairs as long as those of training, and those up to twice as long."""
    sources, targets = (tokenizer.encode(list(texts)) for texts in zip(*pairs, strict=True))
    sizes = np.array([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)])
    ranges = ((0, longest), (longest, 2 * longest))
    return [
        [pair for pair, size in zip(pairs, sizes, strict=True) if low < size <= high]
        for low, high in ranges
    ]


def loss(model, tokenizer, pairs, longest):
    """Nats per token, with the right tokens before it."""
    sources, targets = (tokenizer.encode(list(texts)) for texts in zip(*pairs, strict=True))
    batches = BucketedBatches(
        sources,
        targets,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=(longest // 2, longest, 2 * longest),
        tokens_per_batch=4096,
    )
    total = count = 0
    for inputs, labels in batches.epoch(0):
        logits = model(tuple(map(tf.constant, inputs)), training=False)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        total += float(tf.reduce_sum(tf.where(labels != 0, each, 0.0)))
        count += np.count_nonzero(labels)
    return total / count


def main(folder, settings):
    """Train and score."""
    changes = json.loads(settings)
    preset = get_preset(changes.pop("preset")).with_changes(changes)
    run = TrainingRun(folder, PairSource(corpus="en-zh"), preset)
    # The same test split, which stays unseen, with a larger share of the rest held out.
    run.split = split_pairs(run.source.load(), test_share=0.04, validation_share=0.09)
    start = time.perf_counter()
    model = run.train()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tokenizer, longest = Tokenizer.load(run.tokenizer_path), preset.lengths[-1]
    translator = Translator(model, GraphBPE.from_file(run.tokenizer_path))
    scores = {}
    for prefix, pairs in zip(
        ("", "long_"), by_length(tokenizer, run.split.validation, longest), strict=True
    ):
        sources, references = group_references(pairs)
        translations = translate_texts(translator, sources)
        found = score_translations(translations, references, run.source.target_language)
        scores[f"{prefix}bleu"], scores[f"{prefix}chrf"] = found["bleu"], found["chrf"]
        scores[f"{prefix}loss"] = loss(model, tokenizer, pairs, longest)
        scores[f"{prefix}sentences"] = len(sources)
    scores |= {"weights": model.count_params(), "seconds": seconds, "peak_mib": peak}
    with replacing(Path(folder) / "result.json") as beside:
        beside.write_text(json.dumps(scores, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
