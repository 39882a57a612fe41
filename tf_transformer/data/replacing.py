"""Writing files so that a full disk or a kill never costs the last good ones."""

import contextlib
import os
import shutil
from pathlib import Path


@contextlib.contextmanager
def replacing(path, only_with=None):
    """Write beside `path`, then put the new file or folder in its place.

    Args:
        path, only_with: see `check_replaceable`.

    Yields:
        Path to write to instead, in the same folder and of the same suffixes.

    Raises:
        FileExistsError, IsADirectoryError: as `check_replaceable`; before anything is written.
        OSError: whatever the writing raised; `path` is then as it was, and what was written
            beside it is removed.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with replacing(target) as beside:
        ...     _ = beside.write_text("done")
        >>> target.read_text()
        'done'
    """
    path = Path(path)
    check_replaceable(path, only_with)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}.new.{path.name}")
    retired = path.with_name(f".{os.getpid()}.old.{path.name}")
    try:
        yield beside
        if path.is_dir():
            # A folder cannot be replaced in one step: move the old one aside first.
            os.rename(path, retired)
        os.replace(beside, path)
    except BaseException:
        if retired.exists() and not path.exists():
            os.rename(retired, path)
        raise
    finally:
        for leftover in (beside, retired):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)


def check_replaceable(path, only_with=None):
    """Refuse to put something in the place of a folder that is somebody's else.

    Args:
        path: str or Path of the file or folder to write.
        only_with: None: a file is written. Or str, the name of a file: a folder is, and may be in
            the place of one that holds a file of this name, or nothing.

    Raises:
        FileExistsError: a folder that holds other things.
        IsADirectoryError: a folder, and a file is written.

    Example:
        >>> check_replaceable("new.txt")
    """
    path = Path(path)
    if not path.is_dir():
        return
    if only_with is None:
        raise IsADirectoryError(f"{path}: expected a file, new or to replace, got a folder.")
    if any(path.iterdir()) and not (path / only_with).exists():
        raise FileExistsError(
            f"{path}: expected a new folder, or one with {only_with} to replace, got one that "
            f"holds something else, which would be lost."
        )
