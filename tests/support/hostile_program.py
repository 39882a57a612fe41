"""Give readers damaged files, many in one process with little memory.

`python hostile_program.py FOLDER CASES FIRST_SEED [WHICH]`: CASES per reader, of all readers, of
every fourth from the second on ("1/4"), or of those with WHICH in their names. `FOLDER/now.txt`
names the case that runs, so that whoever started this knows which one ended the process. The file
of a case that fails is kept. Prints one line of JSON.
"""

import faulthandler
import json
import random
import resource
import shutil
import sys
import time
import warnings
import zlib
from pathlib import Path

from hostile_files import READERS

SPARE = 2**30  # bytes that may be asked for besides what is there; the files have kilobytes
SECONDS = 60  # of a case, on a busy machine too


def limit_memory():
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE, resource.RLIM_INFINITY))


def run(reader, valid, folder, cases, first):
    """Run the cases of a reader: how many were accepted, and what went wrong."""
    work = folder / "work" / "inner"
    whole = (valid / reader.file).read_bytes()
    accepted, wrong = 0, {}
    for seed in range(first, first + cases):
        rng = random.Random(zlib.crc32(f"{reader.name} {seed}".encode()))
        data = reader.damage(rng, whole)
        shutil.rmtree(work.parent, ignore_errors=True)
        shutil.copytree(valid, work)
        (work / reader.file).write_bytes(data)
        (folder / "now.txt").write_text(f"{reader.name}, seed {seed}")
        (folder / "now.bin").write_bytes(data)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            reader.read(work)
            accepted += 1
            found = None
        except reader.errors as error:
            found = None if str(error).strip() else f"{type(error).__name__} without a message"
        except BaseException as error:
            found = f"{type(error).__name__}: {str(error)[:300]}"
            last = error.__traceback__
            while last.tb_next:
                last = last.tb_next
            code = last.tb_frame.f_code
            found = f"{found} ({Path(code.co_filename).name}:{last.tb_lineno})"
        faulthandler.cancel_dump_traceback_later()
        if [path.name for path in work.parent.iterdir()] != ["inner"]:
            found = "wrote outside of the folder"
        if found is not None:
            kept = folder / f"{reader.name} {seed}".replace("/", "_")
            kept.write_bytes(data)
            wrong.setdefault(found, []).append(seed)
    return accepted, wrong


def readers_of(which):
    """The readers that the last argument chooses."""
    part, slash, parts = which.partition("/")
    if slash and part.isdigit():
        return READERS[int(part) :: int(parts)]
    return [reader for reader in READERS if which in reader.name]


def main(folder, cases, first, which=""):
    warnings.simplefilter("ignore")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = readers_of(which)
    valid = {}
    for number, reader in enumerate(chosen):
        valid[reader.name] = folder / "valid" / str(number)
        valid[reader.name].mkdir(parents=True)
        reader.make(valid[reader.name])
        # What is valid is accepted; and imports, threads and XLA come before memory is limited.
        reader.read(valid[reader.name])
    limit_memory()
    result = {}
    for reader in chosen:
        begun, count = time.monotonic(), max(1, round(cases * reader.share))
        accepted, wrong = run(reader, valid[reader.name], folder, count, first)
        result[reader.name] = {"cases": count, "accepted": accepted, "wrong": wrong}
        print(
            f"{time.monotonic() - begun:6.1f} s {reader.name}: {count}, {accepted} accepted, "
            f"{sum(map(len, wrong.values()))} wrong",
            file=sys.stderr,
            flush=True,
        )
        for what, seeds in wrong.items():
            print(f"         {len(seeds)} x {what} e.g. {seeds[0]}", file=sys.stderr, flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:5])
