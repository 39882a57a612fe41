"""The command `tf-transformer`.

Only subcommands that need TensorFlow import it, so that `--help` is fast.
"""

import argparse
import errno
import os
import signal
import sys
import traceback

import tf_transformer
from tf_transformer.cli import bert, exporting, inference, training
from tf_transformer.cli.arguments import option
from tf_transformer.errors import ArgumentError, MissingPackage, message_of_graph

# In the order of `--help`.
_COMMANDS = (
    training.add_train,
    training.add_prepare,
    inference.add_translate,
    inference.add_evaluate,
    exporting.add_export,
    inference.add_serve,
    exporting.add_litert,
    inference.add_info,
    inference.add_explore,
    bert.add_search,
    bert.add_train_pairs,
    bert.add_classification,
    exporting.add_compress,
    training.add_pretrain,
    training.add_language_model,
    inference.add_generate,
)
_POSITIONAL = {"folder", "index", "name", "query", "recipe", "text"}
_BUG = (
    "this is probably a bug of the library, not a mistake of yours. Please report it with all of "
    "the lines above, as an issue of the repository of tf_transformer."
)
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}  # nothing is wrong with the input
# The options of arguments with another name; errors name the given ones, or else all that the
# command has. Other options differ from their arguments only in hyphens.
_OPTIONS = {
    "folder": ("output", "resume"),
    "target": ("output",),
    "source": ("file",),
    "path": ("model",),
    "model_or_folder": ("model",),
    "beam_size": ("beam",),
    "validation": ("validation_file",),
    "data": ("corpus", "source_file", "tsv", "prepared", "text"),
}


def main(arguments=None):
    """Run the command."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # regardless of locale and console
        if (getattr(stream, "encoding", None) or "utf-8").lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="replace")
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
        message = _message(error, vars(options))
        if message is None:
            traceback.print_exc()
            message = _BUG
        print(f"tf-transformer: {message}", file=sys.stderr)
        is_system = getattr(error, "errno", None) in _FULL or isinstance(error, ConnectionError)
        return 1 if is_system or message is _BUG else 2
    return 0


def _message(error, given):
    """Return the message for an error in the input or the system, or None for other errors."""
    if isinstance(error, ArgumentError):
        argument, *parts = error.args
        return str(ArgumentError(_options(argument, given), *parts))
    if isinstance(error, OSError | MissingPackage):
        return str(error)
    # Inside a graph, errors are TensorFlow's, with our text.
    if message := message_of_graph(error):
        argument, expected = message.split(": ", 1)
        return f"{_options(argument, given)}: {expected}"
    return None


def _options(argument, given):
    """Return the command's options for the argument of an error, or the argument."""
    names = []
    for name in argument.split(", "):
        if name in given and name not in _POSITIONAL:
            names.append(name)
            continue
        others = [other for other in _OPTIONS.get(name, ()) if other in given]
        if name in given or not others:
            return argument
        names += [other for other in others if given[other]] or others
    return ", ".join(map(option, names))


def _parser():
    parser = argparse.ArgumentParser(
        prog="tf-transformer",
        description="Train, use and export Transformer translators, language models and BERT.",
    )
    parser.add_argument("--version", action="version", version=tf_transformer.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in _COMMANDS:
        add(commands)
    return parser
