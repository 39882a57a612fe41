"""Run the command `tf-transformer`, as a new process or quickly inside this one."""

import contextlib
import functools
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import memory

ROOT = Path(__file__).parents[2]
START = [sys.executable, "-c", "import sys; from tf_transformer.cli import main; sys.exit(main())"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(*arguments, stdin=b""):
    """Run the command in a new process; return a `subprocess.CompletedProcess` with bytes."""
    words = [*START, *map(str, arguments)]
    return subprocess.run(words, input=stdin, capture_output=True, env=ENVIRONMENT)


def command_here(*arguments, stdin=b""):
    """Run the command in this process, with the same result in a tenth of the time.

    This cannot catch output printed by imports or missing imports: for that, one test of each
    kind of command uses `command`. A translator that several commands use is loaded once.
    """
    from tf_transformer.cli import main
    from tf_transformer.export.translation import folder as exported

    earlier = memory.custom_gradients()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        for file, content in zip(files, (stdin, b"", b""), strict=True):
            file.write_bytes(content)
        # `gc.freeze` suits a process that ends soon; here it would keep every test's garbage.
        once = mock.patch.object(exported, "load_saved_model", _load_once)
        variables = mock.patch.dict(os.environ)  # what a command sets for its process
        with _streams(*files), mock.patch.object(gc, "freeze"), once, variables:
            try:
                code = main(list(map(str, arguments)))
            except SystemExit as end:  # raised by argparse
                code = end.code
            finally:
                _optimize_graphs()
        memory.free_if_grown(memory.custom_gradients() - earlier)
        _, stdout, stderr = (file.read_bytes() for file in files)
    return subprocess.CompletedProcess(arguments, code, stdout, stderr)


def _optimize_graphs():
    """Undo what a short command sets for its process."""
    if tf := sys.modules.get("tensorflow"):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def _load_once(path):
    path = Path(path).resolve()  # a relative path may name a copy, with the same times, elsewhere
    files = sorted(path.rglob("*"))
    return _load(path, tuple((file, file.stat().st_mtime_ns) for file in files))


@memory.cleared
@functools.lru_cache(maxsize=4)
def _load(path, state):
    from tf_transformer.export.saving import load_saved_model

    return load_saved_model(path)


@contextlib.contextmanager
def _streams(*files):
    """Redirect standard input, output and error to files, for Python and for native code."""
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
