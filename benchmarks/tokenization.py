"""Tokenizers in `tf.data`, beside their peers: `python benchmarks/tokenization.py`.

Writes results/tokenization.md, .json and .svg. All sentences of the English-Chinese corpus, both
languages, in batches of 64 and 1,024, two calls in parallel. The plot needs matplotlib,
`pip install -e ".[bench]"`. (The file is not called tokenize.py, as every program started in this
folder would import it in place of the standard library's module.)
"""

import argparse
import statistics

import numpy as np
from arena import bars, contest, ratios, speeds, write_json
from side_by_side import FOLDER, write_result

from tf_transformer import load_corpus

OWN = "tf_transformer"
REMARK = """\
Sentences per second, medians over the rounds; the ratio is that of the times within a round, in
brackets its spread. WordPiece: the same vocabulary for all, `FastBertTokenizer` in tensorflow_text.
BPE and Unigram: in tensorflow_text the SentencePiece operation, with a model of its own of the same
size, trained on the same sentences: other tokens, the same kind of work. "py_function": the Rust
package called from the pipeline; "no TensorFlow": the Rust package alone, called from Python.
"""


def main():
    """Run the contests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    texts = [text for pair in load_corpus("en-zh") for text in pair]
    arrays = {"texts": np.frombuffer("\n".join(texts).encode("utf-8"), np.uint8)}
    everything, parts = {}, []
    for model in ("wordpiece", "bpe", "unigram"):
        for batch in (64, 1024):
            case = {"model": model, "batch": batch}
            modules = [("tensorflow-text", "tokens")]
            results = contest(modules, case, arrays, options.rounds, tolerance=None)
            everything[f"{model}, batches of {batch}"] = results
            parts.append(
                f"## {model}, batches of {batch}\n\n{speeds(results, OWN, 'sentences', len(texts))}"
            )
            print(parts[-1], flush=True)
    results = contest([(OWN, "pipeline")], {}, {}, options.rounds, tolerance=None)
    parts.append(f"## Strings to training batches\n\n{pipeline(results)}")
    write_json("tokenization", everything | {"pipeline": results})
    drawn = {title: results for title, results in everything.items() if "1024" in title}
    bars(drawn, FOLDER / "results" / "tokenization.svg")
    setting = "All ran in one process, in turn."
    write_result("tokenization", "Tokenizers in tf.data", [REMARK, *parts], setting)


def pipeline(results):
    """Markdown: what an epoch's pairs cost to read and to train on."""
    faster = ratios(results, "training steps", "strings to batches")
    times = {name: statistics.median(result["seconds"]) for name, result in results.items()}
    return (
        "The small preset, 8,000 pairs of the English-Chinese corpus: tokenised in the graph, "
        f"sorted into buckets and batched in {times['strings to batches']:.2f} s, trained on in "
        f"{times['training steps']:.2f} s. Reading is faster by {statistics.median(faster):.0f} "
        f"({min(faster):.0f} to {max(faster):.0f}); tokens are made once, before the first epoch."
    )


if __name__ == "__main__":
    main()
