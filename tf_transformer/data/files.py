"""Atomic writing of files, and locked folders."""

import contextlib
import glob
import os
import re
import shutil
import socket
from pathlib import Path

import numpy as np

from tf_transformer.errors import ArgumentError, ExistingFileError


@contextlib.contextmanager
def replacing(path, only_with=None, size=0):
    """Write to a temporary path next to `path`, then replace `path`, or a link there, with it."""
    # The content is on the disk before the name changes, and the new name before the block ends.
    path = Path(path)
    check_replaceable(path, only_with)
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_up(path)
    beside = path.with_name(f".{os.getpid()}.new.{path.name}")
    retired = path.with_name(f".{os.getpid()}.old.{path.name}")
    for left in (beside, retired):  # from an earlier process, or a link to another place
        _remove(left)
    try:
        if size:
            _reserve(beside, size, path)
        yield beside
        for written in (beside, *(beside.rglob("*") if beside.is_dir() else ())):
            _flush(written)
        if path.is_dir():
            # A folder cannot be replaced atomically: move the old one aside first.
            os.rename(path, retired)
        os.replace(beside, path)
        _flush(path.parent)
    except BaseException:
        if retired.exists() and not path.exists():
            os.rename(retired, path)
        raise
    finally:
        _remove(beside)
        _remove(retired)


def _clear_up(path):
    """Remove what killed processes left next to `path`, or restore what they had moved aside."""
    for left in path.parent.glob(f".*.{glob.escape(path.name)}"):
        found = re.fullmatch(r"\.(\d+)\.(new|old)\.(.*)", left.name)
        if found is None or found[3] != path.name or _is_alive(int(found[1])):
            continue
        if found[2] == "old" and not path.exists():
            os.rename(left, path)
        else:
            _remove(left)


def _is_alive(process):
    if os.name != "posix":  # on Windows `os.kill` would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # another user's process, or not a process number: its files are left alone
    return True


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _reserve(beside, size, path):
    """Raise OSError unless a file of `size` bytes can be written."""
    if not hasattr(os, "posix_fallocate"):
        return
    with open(beside, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            reason = f"{error.strerror}, {size:,} bytes are needed"
            raise OSError(error.errno, reason, str(path)) from None
    beside.unlink()


def _flush(path):
    """Wait until a file or the names in a folder are on the disk."""
    if os.name != "posix":  # Windows opens no folder, and flushes no file that is only read
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_replaceable(path, only_with=None):
    """Refuse to overwrite a folder with unrelated content."""
    path = Path(path)
    if not path.is_dir():
        return
    if only_with is None:
        raise IsADirectoryError(f"{path}: expected a new or existing file, got a folder.")
    if any(path.iterdir()) and not (path / only_with).exists():
        expected = f"a new folder, or one with {only_with} to replace"
        got = "one with other content, which would be lost"
        raise ExistingFileError("path", expected, got, place=path)


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NAME = ".lock"


@contextlib.contextmanager
def locked(folder):
    """Lock the folder of a run; the lock ends with the block or the process. Not on Windows."""
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
            if not lock_file(file):
                file.seek(0)
                expected = "a folder that no other process uses"
                got = file.read() or "one that another process uses"
                remedy = "Wait until it ends, stop it, or choose another folder."
                raise ArgumentError("folder", expected, got, remedy, place=folder)
            # The previous owner may have removed the file after we opened it.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                yield path
                return


def lock_file(file):
    """Lock an open file until it is closed; False if another process has locked it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def map_array(path):
    """Map the array of an `.npy` file, which need not be trusted, into memory."""
    # Refuses pickled objects, and arrays larger than the file, for which `np.load` would allocate.
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise
    except Exception as error:  # the header is parsed as Python, which raises many kinds
        got = f"{path}, which is damaged or another kind of file: {error}"
        raise ArgumentError("path", "an .npy file", got) from error
