"""Decoding beside its peers, from one set of weights: `python benchmarks/translate.py DATA`.

Translates Multi30k's test sentences of 2016 with the model that multi30k.py trained, greedily and
with beam 5, in batches of 64 and one by one, by every peer in turn, and counts whose tokens are
those of CTranslate2. Writes results/translate.md and .json. Installs each peer into a folder of
benchmarks/.environments at first. Needs `pip install -e ".[bench,train]"`.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

import multi30k_texts as texts
import numpy as np
from arena import peers, write_json
from multi30k_run import load_run
from peers.translation_batches import limit
from side_by_side import interpreter, write_result

from tf_transformer.functional.positions import sinusoidal_positions

ENGINE, OWN = "CTranslate2", ("tf_transformer", "tf_transformer, XLA")
FAST = [
    (ENGINE, "translation_ctranslate2"),
    ("tf_transformer", "translation_ours"),
    ("huggingface", "translation_huggingface"),
]
PEERS = [*FAST, ("keras-hub", "translation_hub")]
ALL = slice(None)
MIDDLE = slice(468, 532)  # of 1,000: sixty-four of like length
# Title: peers, beam, batch, sentences. keras-hub's beam would take ten minutes for all of them.
CASES = {
    "Greedy, batches of 64": (PEERS, 1, 64, ALL),
    "Greedy, one by one": (PEERS, 1, 1, ALL),
    "Beam 5, batches of 64": (FAST, 5, 64, ALL),
    "Beam 5, one by one": (FAST, 5, 1, ALL),
    "Beam 5, one batch of 64": (PEERS, 5, 64, MIDDLE),
}
REMARK = """\
{sentences:,} sentences of {tokens:.1f} tokens, float32, all cores, the weights of `{run}`
({weights:,} numbers). Sentences are sorted by length, so the batches of all peers are the same and
hold little padding. At most 2 S + 10 tokens a translation, no length penalty; S is that of the
longest sentence of the batch for all but this library. "Same tokens": as CTranslate2's, up to
2 S + 10 of the sentence's own; where they differ, a peer's search is another one (keras-hub's beams
go on after the end token). XLA, and keras-hub in any case: S is padded to a power of two.
"CTranslate2, 2 workers": two batches of 32 at once, on a core each; the comparisons are with the
one batch of 64 on both, which is its default. keras-hub's beam translates one batch alone, as all
would take about a minute a round.
"""
STARTUP = """\
Seconds apart from the above: importing and loading the model ("startup"), and what the first round
over all batches took beyond a later one ("tracing and compiling": every program that these
sentences need).
"""


def main():
    """Run all cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder of Multi30k's .gz files")
    parser.add_argument(
        "--run", type=Path, default=Path("runs/multi30k/seed-1"), help="a finished seed"
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed, after one to warm up")
    options = parser.parse_args()
    model, arrays = inputs(options.run, options.data)
    everything, parts = {}, []
    for title, (modules, beam, batch, chosen) in CASES.items():
        case = {"beam": beam, "batch": batch, "model": model}
        sources = arrays["source"][chosen]
        results = contest(modules, case, {**arrays, "source": sources}, options.rounds)
        everything[title] = results
        show = latencies if batch == 1 else throughput
        parts.append(f"## {title}\n\n{show(results, len(sources))}")
        print(parts[-1], flush=True)
    write_json("translate", everything)
    lengths = (arrays["source"] != 0).sum(1)
    remark = REMARK.format(
        sentences=len(lengths),
        tokens=lengths.mean(),
        run=options.run,
        weights=sum(array.size for name, array in arrays.items() if "/" in name),
    )
    parts = [remark.strip(), *parts, f"## Apart\n\n{STARTUP}\n{apart(everything)}"]
    write_result("translate", "Translation, beside its peers", parts)


def inputs(run, data):
    """The model's sizes, and arrays: its weights by name, positions, and sources (N, S)."""
    model, tokenizer = load_run(run)
    arrays = {weight.path.split("/", 1)[1]: weight.numpy() for weight in model.weights}
    sizes = {k: v for k, v in model.get_config().items() if k not in ("dtype", "trainable")}
    arrays["positions"] = sinusoidal_positions(sizes["pe_input"], sizes["d_model"])
    sources = tokenizer.encode(texts.pairs(data, texts.TESTS["test 2016"])[0])
    sources = sorted(([*row, tokenizer.end_id] for row in sources), key=len, reverse=True)
    width = len(sources[0])
    arrays["source"] = np.array([row + [0] * (width - len(row)) for row in sources], np.int32)
    return {**sizes, "start_id": tokenizer.start_id, "end_id": tokenizer.end_id}, arrays


def contest(modules, case, arrays, rounds):
    """Time every variant on one case, in turn.

    Returns:
        dict, variant to its `startup`, `first_seconds`, `peak_mib`, `same` (sentences with
        CTranslate2's tokens) and `rounds`, lists of the seconds of each batch.
    """
    results, homes, found = {}, {}, {}
    limits = limit((arrays["source"] != 0).sum(1))
    for library, _ in modules:
        interpreter(library)  # installed apart from what is timed
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/inputs.npz", **arrays)
        with contextlib.ExitStack() as stack:
            for module in modules:
                start = time.perf_counter()
                [peer] = stack.enter_context(peers([module]))
                answer = peer.ask(case=case, inputs=f"{folder}/inputs.npz", outputs=folder)
                startup = time.perf_counter() - start
                startup -= sum(first["first_seconds"] for first in answer.values())
                for name, first in answer.items():
                    homes[name], found[name] = peer, rows(f"{folder}/{name}.npz", limits)
                    same = sum(map(list.__eq__, found[name], found[ENGINE]))
                    results[name] = {"startup": startup, **first, "same": same, "rounds": []}
            for n in range(rounds):
                for name, peer in homes.items():
                    results[name]["rounds"].append(peer.ask(name=name, laps=True))
                print(f"round {n + 1} of {rounds}", file=sys.stderr, flush=True)
    return results


def rows(path, limits):
    """The translations in a peer's output, as lists of ids, each cut at its limit."""
    with np.load(path) as batches:
        found = [row[row != 0].tolist() for name in batches.files for row in batches[name]]
    return [row[:most] for row, most in zip(found, limits, strict=True)]


def throughput(results, count):
    """Markdown: sentences a second, beside CTranslate2 and beside this library."""
    lines = [
        "| | sentences a second | by CTranslate2's | tf_transformer's by this | by XLA | "
        "same tokens |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        speed = count / statistics.median(map(sum, result["rounds"]))
        own = " | ".join(faster(results, mine, name) for mine in OWN)
        lines.append(
            f"| {name} | {speed:,.0f} | {faster(results, name, ENGINE)} | {own} | "
            f"{result['same']:,} of {count:,} |"
        )
    return "\n".join(lines)


def faster(results, name, other):
    """How much faster `name` is than `other`: the median over the rounds, and their span."""
    both = (map(sum, results[peer]["rounds"]) for peer in (other, name))
    ratios = [theirs / own for theirs, own in zip(*both, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def latencies(results, count):
    """Markdown: milliseconds a sentence."""
    lines = [
        "| | median, ms | 95th percentile, ms | same tokens |",
        "|---|---|---|---|",
    ]
    for name, result in results.items():
        times = 1000 * np.array(result["rounds"])  # every call of every round
        lines.append(
            f"| {name} | {np.median(times):,.1f} | {np.percentile(times, 95):,.1f} | "
            f"{result['same']:,} of {count:,} |"
        )
    return "\n".join(lines)


def apart(everything):
    """Markdown: startup, and the first round's surplus for each case."""
    lines = [
        f"| | startup | {' | '.join(everything)} |",
        "|---" * (len(everything) + 2) + "|",
    ]
    for name, result in next(iter(everything.values())).items():
        cells = [f"{result['startup']:,.1f}"]
        for results in everything.values():
            cells.append("")
            if name in results:
                later = statistics.median(map(sum, results[name]["rounds"]))
                cells[-1] = f"{max(results[name]['first_seconds'] - later, 0):,.1f}"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
