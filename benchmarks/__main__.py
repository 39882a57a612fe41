"""List the benchmarks, run one, or run all that need no data.

    python -m benchmarks                    list them
    python -m benchmarks NAME [options]     run one; NAME --help shows its options
    python -m benchmarks all [options]      run every one that needs no data or model

Run it in the repository root, with this library installed. The libraries to compare with are
installed into benchmarks/.environments when they are first needed. Times are rough, for two cores.
"""

import argparse
import inspect
import subprocess
import sys

from benchmarks.catalogue import BENCHMARKS, BY_NAME


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help formatter that shows defaults other than None and keeps indented lines."""

    def _get_help_string(self, action):
        return action.help if action.default is None else super()._get_help_string(action)

    def _fill_text(self, text, width, indent):
        paragraphs = text.strip().split("\n\n")
        filled = [
            paragraph if "    " in paragraph else super(Help, self)._fill_text(paragraph, width, "")
            for paragraph in paragraphs
        ]
        return "\n\n".join(filled)


def listing():
    """Return a table of all benchmarks by subject, as text."""
    rows = [("NAME", "TIME", "NEEDS")]
    lines = []
    for benchmark in BENCHMARKS:
        needs = [benchmark.needs] if benchmark.needs else []
        peers = [name for name in benchmark.peers if name != "tf_transformer"]
        needs += [f"peers: {', '.join(peers)}"] if peers else []
        rows.append((benchmark.name, benchmark.time, "; ".join(needs) or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    subject = None
    for row, benchmark in zip(rows, [None, *BENCHMARKS], strict=True):
        if benchmark and benchmark.subject != subject:
            subject = benchmark.subject
            lines += ["", f"{subject}/"]
        lines.append(f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip())
        if benchmark:
            lines.append(f"      {benchmark.summary}")
    return "\n".join(lines)


def run_all(arguments):
    """Run every benchmark that needs no data or model, one after the other.

    A failure does not stop the others; the last lines say which ones failed. Takes about two and a
    half hours on two cores, of which `quality` takes one.
    """
    names = [benchmark.name for benchmark in BENCHMARKS if not benchmark.needs]
    parser = argparse.ArgumentParser(
        "python -m benchmarks all",
        description=inspect.cleandoc(run_all.__doc__),
        formatter_class=Help,
    )
    parser.add_argument("--rounds", type=int, default=5, help="for those with this option")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="run these")
    parser.add_argument("--skip", nargs="+", choices=names, metavar="NAME", help="leave these out")
    options = parser.parse_args(arguments)
    calls = [
        [name, *call, *(["--rounds", str(options.rounds)] if BY_NAME[name].rounds else [])]
        for name in options.only or names
        if name not in (options.skip or ())
        for call in BY_NAME[name].calls
    ]
    codes = []
    for number, call in enumerate(calls, 1):
        print(f"{number} of {len(calls)}: {' '.join(call)}", file=sys.stderr, flush=True)
        codes.append(subprocess.run([sys.executable, "-m", "benchmarks", *call]).returncode)
    for call, code in zip(calls, codes, strict=True):
        print(f"{'FAILED' if code else 'ok':6}  {' '.join(call)}", file=sys.stderr)
    return 1 if any(codes) else 0


def run_one(benchmark, arguments):
    """Run a benchmark with its options."""
    module = benchmark.load()
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {benchmark.name}",
        description=module.__doc__,
        formatter_class=Help,
    )
    module.main(parser, arguments)


def main(arguments):
    """Run the requested benchmarks and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        print(listing())
        return 0
    name, *rest = arguments
    if name == "all":
        return run_all(rest)
    if name not in BY_NAME:
        print(
            f"NAME: expected all or one of {', '.join(BY_NAME)}, got {name!r}. "
            "`python -m benchmarks` lists what each does.",
            file=sys.stderr,
        )
        return 2
    return run_one(BY_NAME[name], rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
