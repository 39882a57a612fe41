"""Peers that stay alive, each in its own process and environment, timed in turn."""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from side_by_side import FOLDER, ROOT, SETTINGS, interpreter


class Peer:
    """A worker process that has loaded `peers/MODULE.py` in a library's environment."""

    def __init__(self, library, module):
        self.process = subprocess.Popen(
            [interpreter(library), "worker.py", module],
            cwd=FOLDER,
            env={**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.module = module

    def ask(self, **order):
        """Send an order, wait for the answer."""
        try:
            print(json.dumps(order), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            line = ""
        else:
            line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"peers.{self.module} ended: run worker.py {self.module} to see why")
        return json.loads(line)


@contextlib.contextmanager
def peers(modules):
    """Start a `Peer` for each (library, module), stop them all at the end."""
    started = [Peer(library, module) for library, module in modules]
    try:
        yield started
    finally:
        for peer in started:
            peer.process.kill()
            peer.process.wait()  # its memory is free again


def contest(modules, case, arrays, rounds, tolerance, together=True):
    """Time every variant of every peer on one case, peer after peer in each round.

    Args:
        modules: list of (library, module).
        case, arrays: what the modules' `variants` get.
        rounds: int.
        tolerance: float, or None for variants that do different work.
        together: False starts the peers anew in each round, for those whose memory would not fit
            beside that of the others: TensorFlow keeps what it has once had.

    Returns:
        dict, variant to `{"seconds": [one for each round], "first_seconds", "peak_mib": float}`;
        all have given the output of the first one to within `tolerance`, those named "bare ..."
        excepted.
    """
    results = {}
    groups = [modules] if together else [[module] for module in modules]
    turns = 1 if together else rounds
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/inputs.npz", **arrays)
        for turn in range(turns):
            for group in groups:
                with peers(group) as started:
                    homes = {}
                    for peer in started:
                        answer = peer.ask(case=case, inputs=f"{folder}/inputs.npz", outputs=folder)
                        for name, first in answer.items():
                            homes[name] = peer
                            results.setdefault(name, {"seconds": [], **first})
                    if tolerance is not None and turn == 0:
                        _compare_outputs(folder, list(results), tolerance)
                    _time(homes, results, rounds // turns)
            print(f"{case}: turn {turn + 1} of {turns}", file=sys.stderr)
    return results


def _compare_outputs(folder, names, tolerance):
    expected, *others = [name for name in names if not name.startswith("bare")]
    with np.load(f"{folder}/{expected}.npz") as first:
        for name in others:
            with np.load(f"{folder}/{name}.npz") as output:
                for key in first.files:
                    np.testing.assert_allclose(
                        output[key], first[key], atol=tolerance, err_msg=name
                    )


def _time(homes, results, rounds):
    once = {name: peer.ask(name=name, repeats=1) for name, peer in homes.items()}
    for _ in range(rounds):
        for name, peer in homes.items():
            repeats = max(1, round(0.3 / once[name]))
            results[name]["seconds"].append(peer.ask(name=name, repeats=repeats))


def ratios(results, name, other):
    """Seconds of `name` over seconds of `other`, round by round."""
    pairs = zip(results[name]["seconds"], results[other]["seconds"], strict=True)
    return [one / two for one, two in pairs]


def table(results, own):
    """Markdown: medians of the rounds, and how `own` compares round by round."""
    lines = [
        f"| | milliseconds | time of {own} by this one's |",
        "|---|---|---|",
    ]
    for name, result in results.items():
        compared = ratios(results, own, name)
        lines.append(
            f"| {name} | {1000 * statistics.median(result['seconds']):,.1f} | "
            f"{statistics.median(compared):.2f} ({min(compared):.2f} to {max(compared):.2f}) |"
        )
    return "\n".join(lines)


def speeds(results, own, what, count):
    """Markdown: medians of how many a second, and how `own` compares round by round.

    Args:
        results: as of `contest`.
        own: str, a variant.
        what, count: str and int, what one call does and how many of it.
    """
    lines = [f"| | {what} per second | {own} is faster by |", "|---|---|---|"]
    for name, result in results.items():
        faster = ratios(results, name, own)
        lines.append(
            f"| {name} | {count / statistics.median(result['seconds']):,.0f} | "
            f"{statistics.median(faster):.2f} ({min(faster):.2f} to {max(faster):.2f}) |"
        )
    return "\n".join(lines)


def bars(parts, path):
    """Draw the medians as bars, the spread over the rounds as lines.

    Args:
        parts: dict, title to results of a contest; one picture beside the other.
        path: str or Path of the picture.
    """
    import matplotlib.pyplot as plt  # here: the peers' environments do not have it

    _, all_axes = plt.subplots(1, len(parts), figsize=(4.5 * len(parts), 3), layout="constrained")
    for axes, (title, results) in zip(all_axes, parts.items(), strict=True):
        names = list(results)[::-1]  # the first one on top
        seconds = [results[name]["seconds"] for name in names]
        medians = [statistics.median(values) for values in seconds]
        spread = [
            [median - min(values) for median, values in zip(medians, seconds, strict=True)],
            [max(values) - median for median, values in zip(medians, seconds, strict=True)],
        ]
        axes.barh(names, medians, xerr=spread)
        axes.set_title(title)
        axes.set_xlabel("seconds")
    plt.savefig(path)


def write_json(name, results):
    """All seconds of all rounds, to the microsecond, for whoever wants to look closer."""
    path = Path(FOLDER) / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 6))
    text = json.dumps(rounded, indent=1)
    text = re.sub(r"\[([\d.,e\s-]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(text + "\n", encoding="utf-8")
