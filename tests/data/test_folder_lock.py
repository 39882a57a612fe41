"""A folder belongs to one process at a time, however the one before ended."""

import os
import re
import signal
import subprocess
import sys

import pytest

from tf_transformer.data.files import locked

HOLD = """
import sys, time
from tf_transformer.data.files import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.fault
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    folder = tmp_path / "run"
    first = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE)
    assert first.stdout.readline() == b"held\n"
    message = f"{folder}: expected a folder that no other process uses, got process {first.pid} on"
    with pytest.raises(ValueError, match=re.escape(message)), locked(folder):
        pytest.fail("the block must not run")
    assert (folder / ".lock").exists()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with locked(folder):
        assert f"process {os.getpid()} on " in (folder / ".lock").read_text()
        (folder / "result").touch()
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_an_empty_folder_is_removed_and_an_error_passes(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "new"):
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "new" / "run"), locked(tmp_path / "other"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with locked(tmp_path / "mine"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
