"""The command `tf-transformer`: as a process, and without the seconds that a process starts for."""

import contextlib
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
START = [sys.executable, "-c", "import sys; from tf_transformer.cli import main; sys.exit(main())"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(*arguments, stdin=b""):
    """Run it as a process: a `subprocess.CompletedProcess` with bytes."""
    words = [*START, *map(str, arguments)]
    return subprocess.run(words, input=stdin, capture_output=True, env=ENVIRONMENT)


def command_here(*arguments, stdin=b""):
    """The same from this process, with the same three streams, in a tenth of the time.

    It cannot show what an import prints, nor that one is missing: a test of each kind of command
    uses `command`.
    """
    from tf_transformer.cli import main

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        for file, content in zip(files, (stdin, b"", b""), strict=True):
            file.write_bytes(content)
        # Freezing is for a process that ends soon: here it would keep every test's garbage.
        with _streams(*files), mock.patch.object(gc, "freeze"):
            try:
                code = main(list(map(str, arguments)))
            except SystemExit as end:  # of argparse
                code = end.code
        _, stdout, stderr = (file.read_bytes() for file in files)
    return subprocess.CompletedProcess(arguments, code, stdout, stderr)


@contextlib.contextmanager
def _streams(*files):
    """Files in place of standard input, output and error: for Python, and for what lies below."""
    with contextlib.ExitStack() as stack:
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            saved = os.dup(number)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, number)
            mode = "a" if number else "r"
            with open(files[number], mode) as file:
                os.dup2(file.fileno(), number)
            stream = stack.enter_context(open(number, mode, encoding="utf-8", closefd=False))
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield
