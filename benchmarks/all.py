"""Every comparison with other libraries, one after the other: `python benchmarks/all.py`.

Takes about an hour on two cores. Not among them: accelerator.py, which wants another machine,
bert.py and translate.py, which want a model, and quality.py, which takes hours.
"""

import argparse
import subprocess
import sys

from side_by_side import FOLDER

COMMANDS = [
    ["attention.py"],
    ["attention.py", "--dtype", "bfloat16", "--longest", "2048"],
    ["tokenization.py"],
    ["train.py"],
    ["whole_models.py"],
]


def main():
    """Run them all; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for number, command in enumerate(COMMANDS, 1):
        print(f"{number} of {len(COMMANDS)}: {' '.join(command)}", file=sys.stderr, flush=True)
        program, *arguments = command
        rounds = ["--rounds", str(options.rounds)]
        subprocess.run([sys.executable, FOLDER / program, *arguments, *rounds], check=True)


if __name__ == "__main__":
    main()
