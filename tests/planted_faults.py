"""Plant small faults in copies of the package, one at a time, and check that the tests notice.

    python tests/planted_faults.py               all faults
    python tests/planted_faults.py mask cache    those with one of these words in their file or text

planted_faults.txt has the faults. The test named with each, which runs every day, must fail; the
exit status is 1 if one passes. Add a fault before you remove or shorten a test of its kind.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = 2


class Fault(NamedTuple):
    """A text in a file of the package, its replacement, and the test that notices."""

    file: str
    old: str
    new: str
    test: str

    def planted(self, text):
        """The text of the file with the fault in it."""
        if text.count(self.old) != 1:
            got = f"got {text.count(self.old)} times"
            raise SystemExit(f"{self.file}: expected once, {got}: {self.old}")
        return text.replace(self.old, self.new)


def read_faults():
    """The faults of planted_faults.txt, of four lines each: file, old text, new text, test."""
    lines = (ROOT / "tests" / "planted_faults.txt").read_text("utf-8").splitlines()
    rows = [line for line in lines if line and not line.startswith("#")]
    for place in range(0, len(rows), 4):
        file, old, new, test = rows[place : place + 4]
        assert [row[:2] for row in (file, old, new, test)] == ["@ ", "- ", "+ ", "! "], file
        yield Fault(file[2:], old[2:], new[2:], test[2:])


FAULTS = list(read_faults())


def main(words):
    """Try the faults that one of `words` is in, or all; return the exit status."""
    faults = [fault for fault in FAULTS if not words or any(w in " ".join(fault) for w in words)]
    began, noticed, copies = time.monotonic(), 0, queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PROCESSES) as pool:
        for process in range(PROCESSES):
            copies.put(copied(Path(folder) / str(process) / ROOT.name))
        results = pool.map(lambda fault: is_noticed(fault, copies), faults)
        for fault, found in zip(faults, results, strict=True):
            noticed += found
            by = f"{'noticed' if found else 'MISSED'} by {fault.test}"
            print(f"{fault.file}: {fault.old}\n    {by}", flush=True)
    print(f"{noticed} of {len(faults)} noticed, {(time.monotonic() - began) / 60:.0f} minutes")
    return noticed < len(faults)


def copied(folder):
    """A copy of the files that git knows or does not ignore."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), names.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def is_noticed(fault, copies):
    """Whether the test of a fault fails in one of the `copies`."""
    copy = copies.get()
    path = copy / "tf_transformer" / fault.file
    whole = path.read_text("utf-8")
    path.write_text(fault.planted(whole), "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, f"tests/{fault.test}"], cwd=copy, env=environment, capture_output=True, text=True
    )
    path.write_text(whole, "utf-8")
    copies.put(copy)
    if done.returncode not in (0, 1):
        raise SystemExit(f"tests/{fault.test}: pytest could not run:\n{done.stdout}{done.stderr}")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
