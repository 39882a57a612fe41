"""`--resume` of the commands that train."""

import contextlib
import shlex
import sys

from tf_transformer.errors import ArgumentError


def add_resume_argument(parser):
    """Add `--resume`, the folder of a run to resume.

    Args:
        parser: `ArgumentParser`, whose other arguments default to None or False.
    """
    parser.add_argument(
        "--resume", metavar="FOLDER", help="resume a run that was stopped, with its settings"
    )


def refuse_beside_resume(options, allowed=()):
    """Check that no setting is given with `--resume`: a run keeps its own.

    Args:
        options: the parsed arguments, including `--resume`.
        allowed: names of arguments that are not settings.

    Raises:
        ValueError: If other arguments are given.

    Example:
        >>> import argparse
        >>> options = argparse.Namespace(resume="runs/en", epochs=3, run=print)
        >>> refuse_beside_resume(options)
        Traceback (most recent call last):
        tf_transformer.errors.ArgumentError: --epochs: expected no setting with --resume, whose run
        has its own. Leave it
        out, or start a new run.
    """
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(options).items()
        if value is not None and value is not False and name not in ("run", "resume", *allowed)
    ]
    if given:
        raise ArgumentError(
            ", ".join(given),
            "no setting with --resume, whose run has its own",
            remedy="Leave it out, or start a new run.",
        )


def check_new_run(folder, settings, command, kind, otherwise):
    """Check that a folder contains no run that a new one would overwrite; the chief's task.

    Args:
        folder: Path of the new run.
        settings: str, the file that every run of the command has.
        command: "train" or "pretrain".
        kind: "training" or "pretraining", for the message.
        otherwise: str, what else the user can do.

    Raises:
        ValueError: If there is a run.
    """
    from tf_transformer.distribution import current_workers

    if (folder / settings).exists() and current_workers().is_chief:
        raise ArgumentError(
            "--output",
            "a new folder",
            f"{folder}, which contains a {kind} run",
            f"Resume it: tf-transformer {command} --resume {folder}; or {otherwise}.",
        )


@contextlib.contextmanager
def resumable(folder, command):
    """Say how to resume the run in a folder if it is stopped.

    Args:
        folder: Path of the run.
        command: "train" or "pretrain".
    """
    try:
        yield
    except (KeyboardInterrupt, OSError):
        if (folder / "checkpoints").exists():
            print(
                f"\nA checkpoint is saved. Resume with: tf-transformer {command} --resume "
                f"{shlex.quote(str(folder))}",
                file=sys.stderr,
            )
        raise
