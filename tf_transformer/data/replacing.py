"""Writing files so that a full disk or a killed process never destroys the previous version."""

import contextlib
import os
import shutil
from pathlib import Path


@contextlib.contextmanager
def replacing(path, only_with=None):
    """Write to a temporary path next to `path`, then replace `path` with it.

    Args:
        path, only_with: see `check_replaceable`.

    Yields:
        Path to write to instead, in the same folder and with the same suffixes.

    Raises:
        FileExistsError, IsADirectoryError: See `check_replaceable`; before anything is written.
        OSError: If writing fails; `path` is then unchanged and the temporary path is removed.

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
            # A folder cannot be replaced atomically: move the old one aside first.
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
    """Refuse to overwrite a folder with unrelated content.

    Args:
        path: str or Path of the file or folder to write.
        only_with: None to write a file; or str, the name of a file, to write a folder, which may
            replace an empty folder or one that contains a file of this name.

    Raises:
        FileExistsError: If `path` is a folder with other content.
        IsADirectoryError: If `path` is a folder and `only_with` is None.

    Example:
        >>> check_replaceable("new.txt")
    """
    path = Path(path)
    if not path.is_dir():
        return
    if only_with is None:
        raise IsADirectoryError(f"{path}: expected a new or existing file, got a folder.")
    if any(path.iterdir()) and not (path / only_with).exists():
        raise FileExistsError(
            f"{path}: expected a new folder, or one with {only_with} to replace, got one with "
            f"other content, which would be lost."
        )
