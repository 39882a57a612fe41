"""Trainings too long for a notebook: `python notebooks/train.py NAME [--seeds 3] [--at-once 2]`.

`trainings/NAME.py` holds VARIANTS, functions by name; each takes a seed, trains, and returns its
measurements as a dict. Variants such as "ARM, rate 2" are one arm at several learning rates: all
are trained with the first seed, and the one with the lowest loss with the others too. Every variant
and seed runs in a process of its own, on one core. The results go to `trainings/NAME.json`, which
`claims.trained` reads; those that are there already are kept, so the same command resumes where it
stopped.
"""

import argparse
import concurrent.futures
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from claims import best_rates

FOLDER = Path(__file__).parent / "trainings"
ONE_CORE = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


def one(name, variant, seed):
    """Run one training in this process; its results are the last line that it prints."""
    found = importlib.import_module(f"trainings.{name}").VARIANTS[variant](seed)
    print(json.dumps(found))


def in_a_process(name, variant, seed):
    """Run one training in a process of its own: its results."""
    call = [sys.executable, __file__, name, "--one", variant, str(seed)]
    environment = {**os.environ, **ONE_CORE, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(call, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def save(path, command, results):
    """Write what there is, whole."""
    beside = path.with_suffix(".new")
    text = json.dumps({"command": command, "results": results}, indent=1, ensure_ascii=False)
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


def main():
    """Train what has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="heads, for example: a file in trainings/")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each variant")
    parser.add_argument("--at-once", type=int, default=2, help="trainings, one core each")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="some variants")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.name, options.one[0], int(options.one[1]))
        return
    variants = options.only or list(importlib.import_module(f"trainings.{options.name}").VARIANTS)
    path = FOLDER / f"{options.name}.json"
    kept = json.loads(path.read_text("utf-8"))["results"] if path.exists() else {}
    results = {variant: kept.pop(variant, {}) for variant in variants} | kept
    command = f"python notebooks/train.py {options.name} --seeds {options.seeds}"
    for seed in map(str, range(1, options.seeds + 1)):
        if seed != "1":
            losses = {variant: results[variant]["1"].get("loss") for variant in variants}
            variants = best_rates(losses).values()
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as trainings:
            started = {
                trainings.submit(in_a_process, options.name, variant, seed): variant
                for variant in variants
                if seed not in results[variant]
            }
            for done in concurrent.futures.as_completed(started):
                variant = started[done]
                results[variant][seed] = done.result()
                print(variant, seed, results[variant][seed], flush=True)
                save(path, command, results)


if __name__ == "__main__":
    main()
