"""Two processes agree, or do not, before they train; each prints a line of JSON with what it found.

`python agreeing_program.py FOLDER`, with TF_CONFIG set: the process works in FOLDER/its number.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from tf_transformer import distribution
from tf_transformer.distribution import Workers, together
from tf_transformer.errors import ArgumentError


def main(shared):
    here = Workers.start()
    own = shared / str(here.index)
    own.mkdir(parents=True)
    os.chdir(own)
    distribution._LINGER = 0.1  # several failures in one process
    found = {}

    def outcome(name, check):
        start = time.monotonic()
        try:
            with together():
                check()
            found[name] = None
        except Exception as error:
            found[name] = [type(error).__name__, str(error)]
        assert time.monotonic() - start < 60

    def fail(error):
        if here.index == 1:
            raise error

    def raised(error):
        return lambda: fail(error)

    outcome("an argument", raised(ArgumentError("text", "a file", "none", "Copy it.", place="x")))
    outcome("a file", raised(FileNotFoundError("p.tsv: expected a file, got none.")))
    outcome("a bug", raised(KeyError("weights")))
    found["gathered"] = here.gather(["\u4e2d" * here.index, here.index])

    def agree(name, folder, **facts):
        try:
            here.agree(folder, **facts)
            found[name] = None
        except Exception as error:
            found[name] = [type(error).__name__, str(error)]

    agree("all", shared / "run", preset={"epochs": 3}, data=["a", ("b", None)])
    agree("no folder", None, preset={"epochs": 3})
    # Equal strings, two folders: as on two machines that share nothing.
    agree("folder", "run", preset={"epochs": 3})
    agree("preset", shared / "run", preset={"epochs": 3 + here.index}, data=["a"])
    agree("data", shared / "run", preset={}, data=["a", "b" * (1 + here.index)])
    distribution._PACKAGES = ("tensorflow", "keras", "numpy", "pytest")[: 3 + here.index]
    agree("versions", shared / "run")
    (shared / "file").touch() if here.is_chief else None
    agree("unwritable", shared / "file" / "run")
    found["left"] = sorted(path.name for path in shared.glob("run/*"))
    found["sum"] = here.any(here.index == 1)
    distribution._LINGER = 2.0
    here.leave()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
