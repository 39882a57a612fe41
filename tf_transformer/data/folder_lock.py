"""One process at a time in the folder of a run."""

import contextlib
import os
import socket
from pathlib import Path

from tf_transformer.errors import ArgumentError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NAME = ".lock"


@contextlib.contextmanager
def locked(folder):
    """Hold the folder of a run, so that a second process is refused.

    The system releases the lock when the process ends, however it ends. On Windows nothing is
    locked.
    """
    folder = Path(folder)
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with _acquired(folder) as path:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # one is not empty
                path.unlink()
                for parent in created:
                    parent.rmdir()


@contextlib.contextmanager
def _acquired(folder):
    """Yield the path of the lock file, locked."""
    path = folder / _NAME
    if path.is_symlink():
        raise ArgumentError("path", "a file", "a symbolic link", "Delete it.", place=path)
    while True:
        with open(path, "a+", encoding="utf-8") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.seek(0)
                    raise ArgumentError(
                        "folder",
                        "a folder that no other process uses",
                        file.read() or "one that another process uses",
                        "Wait until it ends, stop it, or choose another folder.",
                        place=folder,
                    ) from None
            # The one before may have removed the file between our opening and locking it.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                yield path
                return
