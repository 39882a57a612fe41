"""Tables, plots and files of the results."""

import json
import os
import platform
import re
import shlex
import statistics
import sys
from pathlib import Path

from benchmarks.harness.environments import BENCHMARKS

RESULTS = BENCHMARKS / "results"
SCORES = RESULTS / "scores"  # BLEU and accuracy, which do not depend on the processor
_CPUINFO = Path("/proc/cpuinfo")
# Instruction sets that decide how fast matrix products are, the widest last.
_EXTENSIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16")
_LEVELS = {"avx2": "avx2", "avx512f": "avx512", "avx512_bf16": "avx512-bf16", "amx_bf16": "amx"}
MEDIANS = "Medians over the rounds, in brackets the range of the ratios within a round."
APART = "Each library ran in its own process and environment, in turn."


def ratios(results, name, other):
    """Seconds of `name` divided by seconds of `other`, round by round."""
    pairs = zip(results[name]["seconds"], results[other]["seconds"], strict=True)
    return [one / two for one, two in pairs]


def spread(values, form=".2f"):
    """The median with the smallest and the largest value: "1.50 (1.47 to 1.61)"."""
    middle = statistics.median(values)
    return f"{middle:{form}} ({min(values):{form}} to {max(values):{form}})"


def times(results, own):
    """Markdown: median milliseconds, and the time of `own` compared round by round."""
    lines = [f"| | milliseconds | time of {own} / time of this |", "|---|---|---|"]
    for name, result in results.items():
        middle = 1000 * statistics.median(result["seconds"])
        lines.append(f"| {name} | {middle:,.1f} | {spread(ratios(results, own, name))} |")
    return "\n".join(lines)


def speeds(results, own, what, count):
    """Markdown: median throughput, and the speed of `own` compared round by round.

    Args:
        results: see `contest`.
        own: str, a variant.
        what, count: str and int, what one call processes and how many of it.
    """
    lines = [f"| | {what} per second | speed of {own} / speed of this |", "|---|---|---|"]
    for name, result in results.items():
        speed = count / statistics.median(result["seconds"])
        lines.append(f"| {name} | {speed:,.0f} | {spread(ratios(results, name, own))} |")
    return "\n".join(lines)


def bars(parts, path):
    """Draw the medians as bars, and the range over the rounds as lines.

    Args:
        parts: dict, title to results of a contest, drawn next to each other.
        path: str or Path of the picture.
    """
    import matplotlib.pyplot as plt  # imported here: the peers' environments do not have it

    _, all_axes = plt.subplots(1, len(parts), figsize=(4.5 * len(parts), 3), layout="constrained")
    for axes, (title, results) in zip(all_axes, parts.items(), strict=True):
        names = list(results)[::-1]  # the first one on top
        seconds = [results[name]["seconds"] for name in names]
        medians = [statistics.median(values) for values in seconds]
        ranges = [
            [median - min(values) for median, values in zip(medians, seconds, strict=True)],
            [max(values) - median for median, values in zip(medians, seconds, strict=True)],
        ]
        axes.barh(names, medians, xerr=ranges)
        axes.set_title(title)
        axes.set_xlabel("seconds")
    plt.savefig(path)


def processor():
    """Read the kind of processor.

    Returns:
        `(name, extensions)`: for example "AMD EPYC", and its relevant instruction sets.
    """
    found = re.findall(r"^(model name|flags)\s*: (.*)", _CPUINFO.read_text("utf-8"), re.MULTILINE)
    fields = {"model name": platform.machine(), "flags": "", **dict(found)}
    flags = fields["flags"].split()
    return re.sub(r"\(\w+\)", "", fields["model name"]), [e for e in _EXTENSIONS if e in flags]


def speeds_folder():
    """Return the folder for times on this kind of processor; it is created.

    It is named for the processor and its widest instruction set: results/amd-epyc-avx512-bf16.
    """
    name, extensions = processor()
    words = re.findall(r"[a-z0-9]+", re.sub(r"processor|cpu|@.*", "", name.lower()))
    folder = RESULTS / "-".join([*words, *[_LEVELS[e] for e in extensions if e in _LEVELS][-1:]])
    folder.mkdir(exist_ok=True)
    return folder


def write_json(name, results):
    """Write the seconds of all rounds, rounded to microseconds, to `PROCESSOR/NAME.json`."""
    rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 6))
    text = json.dumps(rounded, indent=1)
    text = re.sub(r"\[([\d.,e\s-]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    (speeds_folder() / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def write_result(name, title, parts, setting=APART, folder=None):
    """Write NAME.md with the tables, the command and the machine.

    Args:
        name, title: str.
        parts: list of str, Markdown.
        setting: str, how the variants ran.
        folder: Path; by default `speeds_folder()`.
    """
    cpu, extensions = processor()
    # Where a folder lies on this machine tells nobody anything.
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    command = shlex.join(["python", "-m", "benchmarks", *words])
    machine = f"{os.cpu_count()} cores of {cpu} ({' '.join(extensions)}), "
    machine += f"Python {platform.python_version()}."
    parts = [f"# {title}", f"`{command}` on {machine} {setting}".strip(), *parts]
    text = "\n\n".join(part.strip() for part in parts) + "\n"
    folder = folder or speeds_folder()
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
