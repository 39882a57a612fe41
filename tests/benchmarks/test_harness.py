"""The benchmark harness: environments of the peers, and the report of a failing peer."""

import subprocess
import sys

import pytest

from benchmarks.harness import arena, environments


def test_a_peer_that_fails_shows_its_error(monkeypatch):
    monkeypatch.setattr(environments, "interpreter", lambda library: sys.executable)
    error = "status 1:\n(.*\n)*ModuleNotFoundError.*missing"
    with (
        arena.peers([("torch", "attention.peers.missing")]) as (peer,),
        pytest.raises(RuntimeError, match=error),
    ):
        peer.ask(name="any", repeats=1)


def test_an_interrupted_installation_is_repeated(monkeypatch, tmp_path):
    calls = []

    def install(command, check):
        calls.append(command)
        if len(calls) == 1:
            raise subprocess.CalledProcessError(1, command)

    def create(folder, clear, with_pip):
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "python").touch()

    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(environments.venv, "create", create)
    monkeypatch.setattr(environments.subprocess, "run", install)
    with pytest.raises(subprocess.CalledProcessError):
        environments.interpreter("torch")
    for installations in (2, 2):
        assert environments.interpreter("torch") == tmp_path / "torch" / "bin" / "python"
        assert len(calls) == installations
    monkeypatch.setitem(environments.LIBRARIES, "torch", ["torch==0", "numpy"])
    environments.interpreter("torch")
    assert len(calls) == 3
    assert calls[-1][-2:] == ["torch==0", "numpy"]
