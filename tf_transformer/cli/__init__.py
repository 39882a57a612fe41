"""The command `tf-transformer`, a file for each group of its subcommands.

TensorFlow is imported only by the subcommand that needs it, so that `--help` answers at once.
"""

import argparse
import os
import re
import sys

import tf_transformer
from tf_transformer.cli import classification, info, pretraining, sentences, translation

_GROUPS = (translation, info, sentences, classification, pretraining)


def main(arguments=None):
    """Run the command.

    Args:
        arguments: list of str, by default those of the process.

    Returns:
        int, the exit code: 0 done, 2 bad input, 130 stopped by Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except BrokenPipeError:  # `tf-transformer translate ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("tf-transformer: stopped.", file=sys.stderr)
        return 130
    except Exception as error:
        message = _refusal(error)
        if message is None:
            raise
        print(f"tf-transformer: {message}", file=sys.stderr)
        return 2
    return 0


def _refusal(error):
    """What is wrong with the input; None: with the program."""
    if isinstance(error, (ValueError, ImportError, OSError)):
        return str(error)
    # What a graph refuses, as TensorFlow words it, which is not imported here.
    said = re.search("assertion failed: (.*)", str(error))
    return said and said[1]


def _parser():
    parser = argparse.ArgumentParser(
        prog="tf-transformer",
        description="Train, use and export Transformer translators, and BERT.",
    )
    parser.add_argument("--version", action="version", version=tf_transformer.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in _GROUPS:
        group.add_commands(commands)
    return parser
