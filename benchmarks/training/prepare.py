"""Pairs larger than memory: `python -m benchmarks prepare FOLDER`.

Makes a synthetic corpus in FOLDER, prepares it, reads batches of it, and deletes it. Compares how
fast batches are read with how fast the small preset trains on the same machine. Writes
results/PROCESSOR/prepare.md.
"""

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.report import write_result

PROGRAM = "benchmarks.training.prepare"


def main(parser, arguments):
    """Make, prepare, read, delete, write."""
    parser.add_argument("folder", help="to work in; it must not exist")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="size of the corpus")
    parser.add_argument("--workers", type=int, default=2, help="processes of prepare")
    parser.add_argument("--seconds", type=float, default=60.0, help="of reading and of training")
    options = parser.parse_args(arguments)
    folder = Path(options.folder)
    folder.mkdir(parents=True)
    try:
        made = make(folder, options.gigabytes)
        print("made", made, flush=True)
        prepared = measured("prepare", folder, options.workers)
        print("prepared", prepared, flush=True)
        read = measured("read", folder, options.seconds)
        print("read", read, flush=True)
        trained = measured("train", folder, options.seconds)
        print("trained", trained, flush=True)
    finally:
        shutil.rmtree(folder)
    rows = {
        "corpus": f"{options.gigabytes:g} GB in {made['files']} files, {made['pairs']:,} pairs",
        f"`prepare`, {options.workers} processes": f"{prepared['seconds'] / 60:.1f} min, "
        f"{made['pairs'] / prepared['seconds']:,.0f} pairs a second",
        "its memory": f"{prepared['mib']:,.0f} MiB, each process {prepared['children_mib']:,.0f}",
        "shards": f"{prepared['shards']:,}, {prepared['bytes'] / 2**30:.2f} GiB",
        "reading batches": f"{read['tokens']:,.0f} target tokens a second",
        "its memory after 1, 2, 3, ... shards, MiB": ", ".join(
            f"{mib:,.0f}" for mib in read["mib"][:8]
        ),
        "training, small preset": f"{trained['tokens']:,.0f} target tokens a second",
        "reading / training": f"{read['tokens'] / trained['tokens']:.1f}",
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])
    write_result("prepare", "Pairs larger than memory", [table], "")


def make(folder, gigabytes):
    """Write files of pairs that are joined from embedded ones and differ by a number."""
    from tf_transformer.data import load_corpus

    pairs = load_corpus("en-fr")
    rng, sizes, count, files = np.random.default_rng(1), 0, 0, 0
    while sizes < gigabytes * 1e9:
        with open(folder / f"pairs-{files:03}.tsv", "wb") as file:
            while file.tell() < min(1e9, gigabytes * 1e9 - sizes):
                rows = rng.integers(len(pairs), size=(100_000, 3))
                lines = []
                for row in rows:
                    sides = zip(*(pairs[n] for n in row), strict=True)
                    source, target = (" ".join(side) for side in sides)
                    lines.append(f"{source} {count}\t{target} {count}\n")
                    count += 1
                file.write("".join(lines).encode())
            sizes += file.tell()
        files += 1
    return {"pairs": count, "files": files}


def measured(what, folder, number):
    """Run a step in a separate process and return its result."""
    call = [sys.executable, "-m", PROGRAM, what, str(folder), str(number)]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def prepare(folder, workers):
    """Prepare the corpus: seconds, peak memory, what was written."""
    from tf_transformer.data import PairSource, PreparedPairs, prepare_pairs

    start = time.perf_counter()
    files = tuple(map(str, sorted(folder.glob("*.tsv"))))
    prepare_pairs(PairSource(tsv=files), folder / "prepared", workers=workers)
    seconds = time.perf_counter() - start
    peaks = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    pairs = PreparedPairs(folder / "prepared")
    size = sum(path.stat().st_size for path in pairs.folder.glob("*.tfrecord"))
    mib, children = peaks
    return {
        "seconds": seconds,
        "mib": mib,
        "children_mib": children,
        "shards": len(pairs.shards),
        "bytes": size,
    }


def read(folder, seconds):
    """Read batches for some time: target tokens a second, and memory after each shard."""
    run, tokenizer = _run(folder)
    batches = run.batches(tokenizer, run.split.train)
    tokens, mib, start = 0, [], time.perf_counter()
    shard = batches._shard

    def noted(number):
        mib.append(_memory())
        return shard(number)

    batches._shard = noted
    for _, target in batches.dataset(epochs=1).as_numpy_iterator():
        tokens += np.count_nonzero(target)
        if time.perf_counter() - start > seconds:
            break
    return {"tokens": tokens / (time.perf_counter() - start), "mib": mib}


def train(folder, seconds):
    """Train for some time: target tokens a second."""
    from tf_transformer.training import InverseSquareRootSchedule

    run, tokenizer = _run(folder)
    model = run.new_model(tokenizer)
    run.compile(model, InverseSquareRootSchedule(run.preset.d_model, run.preset.warmup_steps))
    batches = run.batches(tokenizer, run.split.train[:20_000])
    model.make_train_function()
    data = iter(batches.dataset())
    for _ in range(20):
        model.train_function(data)
    tokens, start = 0, time.perf_counter()
    for batch in batches.dataset().as_numpy_iterator():
        model.train_function(iter([batch]))
        tokens += np.count_nonzero(batch[1])
        if time.perf_counter() - start > seconds:
            break
    return {"tokens": tokens / (time.perf_counter() - start)}


def _run(folder):
    from tf_transformer.data import PairSource
    from tf_transformer.tokenizers import Tokenizer
    from tf_transformer.training import TrainingRun, get_preset

    source = PairSource(prepared=str(folder / "prepared"))
    run = TrainingRun(folder / "run", source, get_preset("small"))
    return run, Tokenizer.load(run.split.train.tokenizer_path)


def _memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    what, folder, number = sys.argv[1:]
    step = {"prepare": prepare, "read": read, "train": train}[what]
    print(json.dumps(step(Path(folder), int(number) if what == "prepare" else float(number))))
