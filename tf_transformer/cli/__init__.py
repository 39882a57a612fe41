"""The command `tf-transformer`, a file for each group of its subcommands.

TensorFlow is imported only by the subcommand that needs it, so that `--help` answers at once.
"""

import argparse
import os
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
    except (ValueError, ImportError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # `tf-transformer translate ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"tf-transformer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tf-transformer: stopped.", file=sys.stderr)
        return 130
    return 0


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
