"""Accuracy of a fine-tuned BERT and of TF-IDF by the length of the texts.

    python -m benchmarks errors_by_length zh-reviews ARCHIVE MODEL

MODEL is the folder that `tf-transformer finetune` wrote, ARCHIVE the same file as for
`fine_tuning`. The table has the accuracies of both on the test part, that of the mean of their
probabilities, and how often at least one of them is right. Writes
results/scores/errors_by_length-SET.md.
"""

import json
from pathlib import Path

import numpy as np

from benchmarks.harness.environments import run
from benchmarks.harness.report import SCORES, write_result
from tf_transformer.data import load_labelled_texts

TFIDF = "benchmarks.bert.peers.tfidf"
LONGEST = (20, 40, 80, 160, None)  # characters


def main(parser, arguments):
    """Classify, compare, write."""
    parser.add_argument("set", help="of texts")
    parser.add_argument("archive", help="the file of the texts")
    parser.add_argument("model", help="a folder that finetune wrote")
    options = parser.parse_args(arguments)
    archive = Path(options.archive).resolve()
    texts, labels = map(np.array, zip(*load_labelled_texts(options.set, archive).test, strict=True))
    baseline = json.loads(run("scikit-learn", TFIDF, options.set, str(archive)))
    of_words = np.array(baseline["probabilities"])
    of_bert = classified(options.model, texts)
    means = (of_words + of_bert) / 2
    right = [np.argmax(each, axis=1) == labels for each in (of_bert, of_words, means)]
    right.append(right[0] | right[1])
    sizes = np.array([len(text) for text in texts])
    lines = ["| characters | texts | fine-tuned | TF-IDF | mean of both | one of them is right |"]
    lines.append("|---|---|---|---|---|---|")
    shortest = 0
    for longest in LONGEST:
        inside = (sizes >= shortest) & (sizes < (longest or np.inf))
        name = f"{shortest} to {longest - 1}" if longest else f"from {shortest}"
        lines.append(row(name, right, inside))
        shortest = longest
    lines.append(row("all", right, sizes >= 0))
    title = f"Errors by length on {options.set}"
    write_result(f"errors_by_length-{options.set}", title, ["\n".join(lines)], "", SCORES)


def classified(folder, texts):
    """Probabilities from the SavedModel that `finetune` exported."""
    import tensorflow as tf

    model = tf.saved_model.load(str(Path(folder) / "saved_model"))
    batches = np.array_split(texts, -(-len(texts) // 64))
    return np.concatenate(
        [model.classify(tf.constant(batch))["probabilities"].numpy() for batch in batches]
    )


def row(name, right, inside):
    """A line of the table: shares of the texts inside."""
    shares = (f"{100 * each[inside].mean():.1f} %" for each in right)
    return f"| {name} | {inside.sum()} | {' | '.join(shares)} |"
