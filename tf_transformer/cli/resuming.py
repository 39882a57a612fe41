"""`--resume` of the commands that train."""

import contextlib
import shlex
import sys

from tf_transformer.errors import ArgumentError


def add_resume_argument(parser):
    """Add `--resume`, the folder of a run to resume."""
    parser.add_argument(
        "--resume", metavar="FOLDER", help="resume a run that was stopped, with its settings"
    )


def refuse_beside_resume(options, allowed=()):
    """Check that no setting is given with `--resume`: a run keeps its own."""
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
    """Check that a folder contains no run that a new one would overwrite; the chief's task."""
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
    """Say how to resume the run in a folder if it is stopped."""
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
