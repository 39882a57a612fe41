"""Run a benchmark for this library and its peers, interleaved, each in its own environment."""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
ENVIRONMENTS = FOLDER / ".environments"
LIBRARIES = {
    "tf_transformer": [f"{ROOT}[train,bert]"],
    "keras-hub": [f"{ROOT}[train,bert]", "keras-hub==0.32.0"],
    "tensorflow-text": [f"{ROOT}[train]", "tensorflow-text==2.21.1", "sentencepiece"],
    "torch": ["torch==2.13.0", "numpy"],
    "CTranslate2": ["ctranslate2==4.8.5", "numpy"],
    "scikit-learn": ["scikit-learn", "numpy"],
    "huggingface": [
        "torch==2.13.0",
        "transformers==5.23.0",
        "onnx",
        "onnxruntime",
        "numpy",
    ],
}
TRAINERS = ("tf_transformer", "keras-hub", "torch")  # those that `measure.py` knows
# What the command sets for itself (tf_transformer/cli.py); all libraries get it.
SETTINGS = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def interpreter(library):
    """The Python of a library's environment, which is made when it is missing."""
    folder = ENVIRONMENTS / library
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {library} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "-q", *LIBRARIES[library]]
        subprocess.run(command, check=True)
    return python


def run(library, *arguments):
    """Run a program of this folder in a library's environment; its standard output."""
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT)}
    command = [interpreter(library), *arguments]
    done = subprocess.run(
        command, cwd=FOLDER, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def compare(batches, rounds, *options):
    """Train with all libraries in turn, several times over.

    Returns:
        dict, name to the list of its results, one for each round.
    """
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "batches.npz"
        run("tf_transformer", "batches.py", data, str(batches))
        for n in range(rounds):
            for library in TRAINERS:
                output = run(library, "measure.py", library, data, *options)
                result = json.loads(output.splitlines()[-1])
                results.setdefault(library, []).append(result)
                rate = result["tokens_per_second"]
                print(f"round {n + 1}: {library} {rate:,.0f} tokens/s", file=sys.stderr)
    return results


def table(results):
    """Markdown: medians, and the median of the ratios within a round."""
    own = [result["tokens_per_second"] for result in results["tf_transformer"]]
    lines = [
        "Medians over the rounds, in brackets the spread of the ratios.\n",
        "| library | target tokens per second | this library is faster by | peak memory |",
        "|---|---|---|---|",
    ]
    for name, rows in results.items():
        speeds = [row["tokens_per_second"] for row in rows]
        ratios = [ours / theirs for ours, theirs in zip(own, speeds, strict=True)]
        memory = statistics.median(row["peak_mib"] for row in rows)
        lines.append(
            f"| {name} | {statistics.median(speeds):,.0f} | {statistics.median(ratios):.2f}x "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {memory:,.0f} MiB |"
        )
    return "\n".join(lines)


APART = "Each library ran in a process and an environment of its own, in turn."


def write_result(name, title, parts, setting=APART):
    """Write `results/NAME.md`: the tables, the command and the machine."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    text = (
        f"# {title}\n\n`{' '.join(['python', *sys.argv])}` on {os.cpu_count()} cores of {cpu}, "
        f"Python {platform.python_version()}. {setting}\n\n" + "\n\n".join(parts) + "\n"
    )
    path = FOLDER / "results" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(text)
