"""`--resume` of the commands that train."""


def add_resume_argument(parser):
    """Add `--resume`, the folder of a run to go on with.

    Args:
        parser: `ArgumentParser`, whose other arguments have no default but None or False.
    """
    parser.add_argument(
        "--resume", metavar="FOLDER", help="go on with a run that was stopped, with its settings"
    )


def refuse_beside_resume(options, allowed=()):
    """A run goes on with the settings that it began with.

    Args:
        options: the parsed arguments, `--resume` among them.
        allowed: names of those that change no setting.

    Raises:
        ValueError: other arguments are given.

    Example:
        >>> import argparse
        >>> options = argparse.Namespace(resume="runs/en", epochs=3, run=print)
        >>> refuse_beside_resume(options)
        Traceback (most recent call last):
        ValueError: --epochs: expected no setting beside --resume, whose run has its own. Leave it
        out, or begin a new run.
    """
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(options).items()
        if value is not None and value is not False and name not in ("run", "resume", *allowed)
    ]
    if given:
        raise ValueError(
            f"{', '.join(given)}: expected no setting beside --resume, whose run has its own. "
            f"Leave it out, or begin a new run."
        )
