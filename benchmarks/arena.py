"""Peers that stay alive, each in its own process and environment, timed in turn."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from side_by_side import FOLDER, ROOT, SETTINGS, interpreter


class Peer:
    """A worker process that has loaded `peers/MODULE.py` in a library's environment.

    `pooled` lets TensorFlow keep freed memory, as the command does. Without, it goes back to the
    system after each operation: slower, but the peak is that of a single call, and peers that
    hold gigabytes fit beside each other.
    """

    def __init__(self, library, module, pooled):
        environment = {**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT)}
        environment["TF_CPU_ALLOCATOR_USE_BFC"] = str(pooled).lower()
        self.process = subprocess.Popen(
            [interpreter(library), "worker.py", module],
            cwd=FOLDER,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.module = module

    def ask(self, **order):
        """Send an order, wait for the answer."""
        print(json.dumps(order), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"peers.{self.module} ended: run worker.py {self.module} to see why")
        return json.loads(line)


@contextlib.contextmanager
def peers(modules, pooled=True):
    """Start a `Peer` for each (library, module), stop them all at the end."""
    started = [Peer(library, module, pooled) for library, module in modules]
    try:
        yield started
    finally:
        for peer in started:
            peer.process.kill()


def contest(started, case, arrays, rounds, tolerance):
    """Time every variant of every peer on one case.

    Returns:
        dict, variant to `{"seconds": [one for each round], "peak_mib": float}`; all have given the
        output of the first one to within `tolerance`, those named "bare ..." excepted.
    """
    results, homes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        inputs = f"{folder}/inputs.npz"
        np.savez(inputs, **arrays)
        for peer in started:
            for name, peak in peer.ask(case=case, inputs=inputs, outputs=folder).items():
                homes[name] = peer
                results[name] = {"seconds": [], "peak_mib": peak}
        expected, *others = [name for name in homes if not name.startswith("bare")]
        with np.load(f"{folder}/{expected}.npz") as first:
            for name in others:
                with np.load(f"{folder}/{name}.npz") as output:
                    for key in first.files:
                        np.testing.assert_allclose(
                            output[key], first[key], atol=tolerance, err_msg=f"{name} {case}"
                        )
    once = {name: peer.ask(name=name, repeats=1) for name, peer in homes.items()}
    for n in range(rounds):
        for name, peer in homes.items():
            repeats = max(1, round(0.3 / once[name]))
            results[name]["seconds"].append(peer.ask(name=name, repeats=repeats))
        print(f"{case}: round {n + 1} of {rounds}", file=sys.stderr)
    return results


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


def write_json(name, results):
    """All seconds of all rounds, for whoever wants to look closer."""
    path = Path(FOLDER) / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
