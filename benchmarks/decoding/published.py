"""Published models compared with their peers: `python -m benchmarks published`.

Writes folders of Marian, GPT-2 and Qwen2 with random weights, then decodes a fixed number of tokens
greedily and with 4 beams, a batch and a single text, with every peer in turn. Writes
results/PROCESSOR/published.md and .json, after each model and type what there is so far.
"""

import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness.arena import peers
from benchmarks.harness.environments import interpreter, run
from benchmarks.harness.report import ratios, spread, write_json, write_result

OWN, REFERENCE = "tf_transformer", "transformers"
TITLES = {
    "marian": "Marian, 6 + 6 layers of width 512",
    "gpt2": "GPT-2, 124 million weights",
    "qwen2": "Qwen2, 494 million weights",
}
OURS = ("tf_transformer", "decoding.peers.published_ours")
TORCH = ("huggingface", "decoding.peers.published_torch")
ENGINE = ("ctranslate2-transformers", "decoding.peers.published_ctranslate2")
ONNX = ("optimum-onnx", "decoding.peers.published_onnx")
# transformers has no int8 on a CPU that covers these models; CTranslate2 4.8 refuses bfloat16 on a
# CPU, and ONNX Runtime has no such kernels.
PEERS = {
    "float32": (TORCH, OURS, ENGINE, ONNX),
    "bfloat16": (TORCH, OURS),
    "int8": (OURS, ENGINE, ONNX),
}
REMARK = """\
Random weights, {prompt} tokens of each source or prompt, {new} new tokens, no padding. New tokens
per second; the time includes the encoder or the prompt. "x {batch}": a batch of {batch} texts.
After the comma: the speed of tf_transformer / the speed of this, the median of {rounds} rounds and
the range. "Same": the results of all four columns with all tokens of transformers in float32. With
random weights small errors change many tokens, so in bfloat16 and int8 this number says little
about trained models. int8: tf_transformer has fixed ranges, calibrated with the same texts, the
others one for each token. transformers has no int8 on a CPU for all of these models; CTranslate2
and ONNX Runtime have no bfloat16 there. Loading, converting and tracing are not timed.
"""


def main(parser, arguments):
    """Compare all models in all types."""
    parser.add_argument("--rounds", type=int, default=3, help="timed, after one to warm up")
    parser.add_argument("--models", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--types", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--folder", type=Path, help="keeps the models, else a temporary one")
    parser.add_argument("--batch", type=int, default=32, help="texts")
    parser.add_argument("--prompt", type=int, default=24, help="tokens of a source or prompt")
    parser.add_argument("--new", type=int, default=16, help="tokens to decode")
    parser.add_argument("--size", choices=("full", "tiny"), default="full", help="of the models")
    parser.add_argument("--xla", action="store_true", help="also tf_transformer with XLA, float32")
    options = parser.parse_args(arguments)
    tasks = {
        f"{strategy} x {rows}": (beams, rows)
        for rows in (options.batch, 1)
        for strategy, beams in (("greedy", 1), ("4 beams", 4))
    }
    results, found = {}, {}
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in options.models:
            case, arrays = inputs(folder.resolve(), name, options)
            for kind in options.types:
                this = {**case, "type": kind, "tasks": tasks}
                outcome = contest(this, arrays, options.rounds, found.setdefault(name, {}))
                results.setdefault(name, {})[kind] = outcome
                write(results, tasks, options)


def inputs(folder, name, options):
    """The case of a model, whose folder is written if it is missing, and its texts."""
    path = folder / f"{name}-{options.size}"
    if not path.exists():
        run("huggingface", "benchmarks.decoding.published_folders", name, f"{path}", options.size)
    config = json.loads((path / "config.json").read_text("utf-8"))
    translates, end_id = name == "marian", config["eos_token_id"]
    pad_id = config["pad_token_id"] if translates else end_id
    ids = np.random.default_rng(1).integers(1, end_id or pad_id, (options.batch, options.prompt))
    if translates:
        ids[:, -1] = end_id
    case = {"folder": f"{path}", "translates": translates, "end_id": end_id, "pad_id": pad_id}
    case |= {"vocab_size": config["vocab_size"], "new_tokens": options.new, "xla": options.xla}
    return case, {"ids": ids.astype(np.int32)}


def contest(case, arrays, rounds, found):
    """Time every variant in turn.

    Args:
        case, arrays: see `inputs`; the case also has a type and tasks.
        rounds: int.
        found: dict, task to the tokens of transformers in float32, which are added to it.

    Returns:
        dict, "LABEL: TASK" to `{"seconds", "first_seconds", "peak_mib", "same"}`.
    """
    results, homes = {}, {}
    for library, _ in PEERS[case["type"]]:
        interpreter(library)  # installed before anything is timed
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        np.savez(f"{folder}/inputs.npz", **arrays)
        for module in PEERS[case["type"]]:
            [peer] = stack.enter_context(peers([module]))
            answer = peer.ask(case=case, inputs=f"{folder}/inputs.npz", outputs=folder)
            for name, first in answer.items():
                label, task = name.split(": ")
                with np.load(f"{folder}/{name}.npz") as output:
                    ids = output["arr_0"]
                if label == REFERENCE and case["type"] == "float32":
                    found[task] = ids
                homes[name], same = peer, (ids == found.get(task, -1)).all(1).sum()
                results[name] = {**first, "same": int(same), "seconds": []}
            print(f"{case['folder']}, {case['type']}: {module[1]}", file=sys.stderr, flush=True)
        for _ in range(rounds):
            for name, peer in homes.items():
                results[name]["seconds"].append(peer.ask(name=name, repeats=1))
    return results


def write(results, tasks, options):
    """Write what there is so far."""
    write_json("published", results)
    sizes = {"prompt": options.prompt, "new": options.new, "batch": options.batch}
    parts = [REMARK.format(**sizes, rounds=options.rounds)]
    for name, kinds in results.items():
        lines = [f"| | {' | '.join(tasks)} | same |", "|---" * (len(tasks) + 2) + "|"]
        for kind, outcome in kinds.items():
            lines += table_rows(outcome, kind, tasks, options.new)
        parts += [f"## {TITLES[name]}", "\n".join(lines)]
    write_result("published", "Published models, compared with their peers", parts)


def table_rows(results, kind, tasks, new):
    """Markdown: a row for each library, with its tokens per second in each task."""
    lines = []
    for label in dict.fromkeys(name.split(": ")[0] for name in results):
        cells, same = [], 0
        for task, (_, texts) in tasks.items():
            name = f"{label}: {task}"
            speed = texts * new / statistics.median(results[name]["seconds"])
            faster = f", {spread(ratios(results, name, f'{OWN}: {task}'))}" if label != OWN else ""
            cells.append(f"{speed:,.1f}{faster}")
            same += results[name]["same"]
        every = sum(texts for _, texts in tasks.values())
        lines.append(f"| {label}, {kind} | {' | '.join(cells)} | {same} of {every} |")
    return lines
