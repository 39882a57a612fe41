"""Peers that stay alive, each in its own process and environment, timed in turn."""

import contextlib
import json
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.harness.environments import start

WORKER = "benchmarks.harness.worker"


class Peer:
    """A worker process that has loaded `benchmarks.MODULE` in a library's environment."""

    def __init__(self, library, module):
        self.module = module
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  as long as the worker
        self.process = start(library, WORKER, module, stdin=subprocess.PIPE, stderr=self.errors)

    def ask(self, **order):
        """Send an order and wait for the answer."""
        try:
            print(json.dumps(order), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            line = ""
        else:
            line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            last = "".join(self.errors.readlines()[-20:])
            raise RuntimeError(f"{self.module}: the worker ended with status {status}:\n{last}")
        return json.loads(line)

    def close(self):
        """End the process; its memory is free again."""
        self.process.kill()
        with self.process, self.errors:
            self.process.wait()


@contextlib.contextmanager
def peers(modules):
    """Start a `Peer` for each (library, module) and stop them all at the end."""
    started = [Peer(library, module) for library, module in modules]
    try:
        yield started
    finally:
        for peer in started:
            peer.close()


def contest(modules, case, arrays, rounds, tolerance, together=True, repeats=None):
    """Time every variant of every peer on one case, peer after peer in each round.

    Args:
        modules: list of (library, module), the module's name without "benchmarks.".
        case, arrays: passed to the modules' `variants`.
        rounds: int.
        tolerance: float, or None for variants that do different work.
        together: False starts each peer again in every round, for peers whose memory does not
            fit next to that of the others: TensorFlow keeps memory that it has once allocated.
        repeats: int, calls in each timed round; by default as many as take about 0.3 seconds,
            for which one more call is made first.

    Returns:
        dict, variant to `{"seconds": [one for each round], "first_seconds", "peak_mib": float}`.
        With `repeats` also `process_mib` and `values`, lists of one for each round: the peak memory
        of the whole process, and what the last call returned, as floats.

    Raises:
        AssertionError: If an output differs from that of the first variant by more than
            `tolerance`. Variants named "bare ..." are not compared.
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
                    _time(homes, results, rounds // turns, repeats)
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


def _time(homes, results, rounds, repeats):
    if repeats is None:
        once = {name: peer.ask(name=name, repeats=1) for name, peer in homes.items()}
        counts = {name: max(1, round(0.3 / seconds)) for name, seconds in once.items()}
    for _ in range(rounds):
        for name, peer in homes.items():
            result = results[name]
            if repeats is None:
                result["seconds"].append(peer.ask(name=name, repeats=counts[name]))
                continue
            answer = peer.ask(name=name, repeats=repeats, details=True)
            for key, value in answer.items():
                result.setdefault(key, []).append(value)
