"""Tokenizers in `tf.data`, compared with their peers: `python -m benchmarks tokenization`.

All sentences of the English-Chinese corpus, both languages, in batches of 64 and 1,024, two calls
in parallel. Writes results/PROCESSOR/tokenization.md, .json and .svg. The plot needs matplotlib:
`pip install -e ".[bench]"`.
"""

import statistics

import numpy as np

from benchmarks.harness.arena import contest
from benchmarks.harness.report import (
    bars,
    ratios,
    speeds,
    speeds_folder,
    spread,
    write_json,
    write_result,
)
from tf_transformer import load_corpus

OWN = "tf_transformer"
PEERS = [("tensorflow-text", "tokenization.peers.tokens")]
PIPELINE = [(OWN, "tokenization.peers.pipeline")]
REMARK = """\
Medians over the rounds, in brackets the range of the ratios within a round. WordPiece: the same
vocabulary for all; in tensorflow_text `FastBertTokenizer`. BPE and Unigram: in tensorflow_text the
SentencePiece operation, with its own model of the same size, trained on the same sentences: other
tokens, the same kind of work. "py_function": the Rust package called from the pipeline. "no
TensorFlow": the Rust package called from Python.
"""


def main(parser, arguments):
    """Run the contests."""
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds")
    options = parser.parse_args(arguments)
    texts = [text for pair in load_corpus("en-zh") for text in pair]
    arrays = {"texts": np.frombuffer("\n".join(texts).encode("utf-8"), np.uint8)}
    everything, parts = {}, []
    for model in ("wordpiece", "bpe", "unigram"):
        for batch in (64, 1024):
            case = {"model": model, "batch": batch}
            results = contest(PEERS, case, arrays, options.rounds, tolerance=None)
            everything[f"{model}, batches of {batch}"] = results
            parts.append(
                f"## {model}, batches of {batch}\n\n{speeds(results, OWN, 'sentences', len(texts))}"
            )
            print(parts[-1], flush=True)
    results = contest(PIPELINE, {}, {}, options.rounds, tolerance=None)
    parts.append(f"## Strings to training batches\n\n{pipeline(results)}")
    write_json("tokenization", everything | {"pipeline": results})
    drawn = {title: results for title, results in everything.items() if "1024" in title}
    setting = "All ran in one process, in turn."
    write_result("tokenization", "Tokenizers in tf.data", [REMARK, *parts], setting)
    bars(drawn, speeds_folder() / "tokenization.svg")


def pipeline(results):
    """Markdown: the time to read the pairs of an epoch, and to train on them."""
    faster = ratios(results, "training steps", "strings to batches")
    times = {name: statistics.median(result["seconds"]) for name, result in results.items()}
    return (
        "The small preset, 8,000 pairs of the English-Chinese corpus: tokenized in the graph, "
        f"sorted into buckets and batched in {times['strings to batches']:.2f} s, trained on in "
        f"{times['training steps']:.2f} s. Reading is {spread(faster, '.0f')} times as fast as "
        "training; texts are tokenized once, before the first epoch."
    )
