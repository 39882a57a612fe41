"""Decoding compared with its peers, with the same weights: `python -m benchmarks translate DATA`.

Translates Multi30k's test sentences of 2016 with the model that `multi30k` trained, greedily and
with beam 5, in batches of 64 and one by one, with every peer in turn, and counts the translations
with the same tokens as CTranslate2's. Writes results/PROCESSOR/translate.md and .json. Needs
`pip install -e ".[bench,train]"`.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.decoding.peers.batches import limit
from benchmarks.harness.arena import peers
from benchmarks.harness.environments import interpreter
from benchmarks.harness.report import spread, write_json, write_result
from benchmarks.translation import multi30k_texts as texts
from benchmarks.translation.multi30k_run import load_run

ENGINE, OWN = "CTranslate2", ("tf_transformer", "tf_transformer, XLA")
FAST = [
    (ENGINE, "decoding.peers.ctranslate2_engine"),
    ("tf_transformer", "decoding.peers.ours"),
    ("huggingface", "decoding.peers.marian"),
]
PEERS = [*FAST, ("keras-hub", "decoding.peers.hub_samplers")]
ALL = slice(None)
MIDDLE = slice(468, 532)  # of 1,000: 64 of similar length
# Title: peers, beam, batch, sentences. keras-hub's beam would take ten minutes for all of them.
CASES = {
    "Greedy, batches of 64": (PEERS, 1, 64, ALL),
    "Greedy, one by one": (PEERS, 1, 1, ALL),
    "Beam 5, batches of 64": (FAST, 5, 64, ALL),
    "Beam 5, one by one": (FAST, 5, 1, ALL),
    "Beam 5, one batch of 64": (PEERS, 5, 64, MIDDLE),
}
REMARK = """\
{sentences:,} sentences of {tokens:.1f} tokens on average, float32, all cores, the weights of
`{run}` ({weights:,} numbers). Sentences are sorted by length, so all peers have the same batches,
with little padding. A translation has at most 2 S + 10 tokens, and there is no length penalty; S is
the length of the longest sentence in the batch, in this library that of the sentence itself.
"Same tokens": the same as CTranslate2's, up to 2 S + 10 of the sentence itself. Where they differ,
the peer searches differently (keras-hub extends beams after the end token). With XLA, and in
keras-hub always, S is padded to a power of two. "CTranslate2, 2 workers": two batches of 32 in
parallel, one on each core; "/ CTranslate2" compares with its default, one batch of 64 on both
cores. keras-hub's beam search translates only one batch; all of them would take about a minute a
round.
"""
STARTUP = """\
Seconds that the tables above leave out: importing and loading the model ("startup"), and for each
case how much longer the first round took than a later one (tracing and compiling every program
that these sentences need).
"""


def main(parser, arguments):
    """Run all cases."""
    parser.add_argument("data", type=Path, help="the folder of Multi30k's .gz files")
    parser.add_argument(
        "--run", type=Path, default=Path("runs/multi30k/seed-1"), help="a finished seed"
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed, after one to warm up")
    options = parser.parse_args(arguments)
    model, arrays = inputs(options.run, options.data)
    everything, parts = {}, []
    for title, (modules, beam, batch, chosen) in CASES.items():
        case = {"beam": beam, "batch": batch, "model": model}
        sources = arrays["source"][chosen]
        results, _ = contest(modules, case, {**arrays, "source": sources}, options.rounds)
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
    parts.append(f"## Startup and compilation\n\n{STARTUP}\n{startup_times(everything)}")
    write_result("translate", "Translation, compared with its peers", [remark, *parts])


def inputs(run, data):
    """The model's sizes, and arrays: its weights by name, positions, and sources (N, S)."""
    model, tokenizer = load_run(run)
    sentences = texts.pairs(data, texts.TESTS["test 2016"])[0]
    return model_arrays(model, tokenizer, tokenizer.encode(sentences))


def model_arrays(model, tokenizer, sources):
    """The same for any model with shared embeddings; `sources` are lists of ids without the end."""
    from tf_transformer.functional.positions import sinusoidal_positions

    arrays = {weight.path.split("/", 1)[1]: weight.numpy() for weight in model.weights}
    sizes = {k: v for k, v in model.get_config().items() if k not in ("dtype", "trainable")}
    arrays["positions"] = sinusoidal_positions(sizes["pe_input"], sizes["d_model"])
    sources = ([*row, tokenizer.end_id] for row in sources)
    sources = sorted(sources, key=len, reverse=True)
    width = len(sources[0])
    arrays["source"] = np.array([row + [0] * (width - len(row)) for row in sources], np.int32)
    return {**sizes, "start_id": tokenizer.start_id, "end_id": tokenizer.end_id}, arrays


def contest(modules, case, arrays, rounds):
    """Time every variant on one case in turn.

    Returns:
        `(results, found)`: dict, variant to its `startup`, `first_seconds`, `peak_mib`, `same`
        (sentences with CTranslate2's tokens) and `rounds`, lists of the seconds of each batch;
        dict, variant to its translations, lists of ids.
    """
    results, homes, found = {}, {}, {}
    limits = limit((arrays["source"] != 0).sum(1))
    for library, _ in modules:
        interpreter(library)  # installed before anything is timed
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
    return results, found


def rows(path, limits):
    """The translations in a peer's output, as lists of ids, each cut at its limit."""
    with np.load(path) as batches:
        found = [row[row != 0].tolist() for name in batches.files for row in batches[name]]
    return [row[:most] for row, most in zip(found, limits, strict=True)]


def throughput(results, count):
    """Markdown: sentences per second, compared with CTranslate2 and with this library."""
    lines = [
        "| | sentences a second | speed / CTranslate2 | tf_transformer / speed | "
        "tf_transformer, XLA / speed | same tokens |",
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
    """Return the speed of `name` relative to `other`: the median over the rounds, and the range."""
    both = (map(sum, results[peer]["rounds"]) for peer in (other, name))
    return spread([theirs / own for theirs, own in zip(*both, strict=True)])


def latencies(results, count):
    """Markdown: milliseconds per sentence."""
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


def startup_times(everything):
    """Markdown: startup, and how much longer the first round of each case took."""
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
