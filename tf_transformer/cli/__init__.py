"""The command `tf-transformer`, one file per subcommand or pair of subcommands.

TensorFlow is imported only by the subcommand that needs it, so that `--help` answers at once.
"""

import argparse
import errno
import os
import re
import signal
import sys

import tf_transformer
from tf_transformer.cli import (
    classification,
    compressing,
    evaluation,
    exploring,
    exporting,
    info,
    language_model,
    litert,
    pairs,
    preparing,
    pretraining,
    sentences,
    serving,
    training,
    translation,
)

# In the order of `--help`.
_GROUPS = (
    training,
    preparing,
    translation,
    evaluation,
    exporting,
    serving,
    litert,
    info,
    exploring,
    sentences,
    pairs,
    classification,
    compressing,
    pretraining,
    language_model,
)
_POSITIONAL = {"folder", "index", "name", "query", "recipe", "text"}
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}  # nothing is wrong with the input
# Arguments named in errors whose option has another name; other options differ in hyphens only.
_OPTIONS = {
    "target": "--output",
    "source": "--file",
    "path": "--model",
    "model_or_folder": "--model",
    "beam_size": "--beam",
    "validation": "--validation-file",
    "data": "--corpus, --source-file, --tsv, --prepared",
}


def main(arguments=None):
    """Run the command.

    Args:
        arguments: list of str, by default those of the process.

    Returns:
        int, the exit code: 0 success, 1 the system failed (a full disk, a lost worker), 2 bad
        input, 130 stopped with Ctrl-C, 143 told to terminate (SIGTERM) while training.
    """
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except BrokenPipeError:  # `tf-transformer translate ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt as error:
        print("tf-transformer: stopped.", file=sys.stderr)
        [number] = error.args or [signal.SIGINT]
        return 128 + number
    except Exception as error:
        message = _refusal(error)
        if message is None:
            raise
        print(f"tf-transformer: {_with_options(message, vars(options))}", file=sys.stderr)
        is_system = getattr(error, "errno", None) in _FULL or isinstance(error, ConnectionError)
        return 1 if is_system else 2
    return 0


def _refusal(error):
    """Return the message if the error is in the input, None if it is in the program."""
    if isinstance(error, (ValueError, ImportError, OSError)):
        return str(error)
    # An error raised inside a graph; matched by its text, since TensorFlow is not imported here.
    said = re.search("assertion failed: (.*)", str(error))
    return said and said[1]


def _with_options(message, given):
    """Replace the argument names of an error message with the options of the command."""
    names, colon, rest = message.partition(":")
    options = []
    for name in names.split(", "):
        if name in given and name not in _POSITIONAL:
            options.append(f"--{name.replace('_', '-')}")
        elif name in _OPTIONS and set(_OPTIONS[name].split(", ")) & _names(given):
            options.append(_OPTIONS[name])
        else:
            return message
    return f"{', '.join(options)}{colon}{rest}"


def _names(given):
    return {f"--{name.replace('_', '-')}" for name in given}


def _parser():
    parser = argparse.ArgumentParser(
        prog="tf-transformer",
        description="Train, use and export Transformer translators, language models and BERT.",
    )
    parser.add_argument("--version", action="version", version=tf_transformer.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in _GROUPS:
        group.add_commands(commands)
    return parser
