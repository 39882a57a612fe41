"""The benchmark harness: environments of the peers, and the report of a failing peer."""

import subprocess
import sys

import pytest

from benchmarks.harness import arena, environments, report


@pytest.mark.parametrize(
    ("model", "flags", "name", "extensions", "folder"),
    [
        ("AMD EPYC", "sse avx2 avx512f", "AMD EPYC", ["avx2", "avx512f"], "amd-epyc"),
        ("Intel(R) Xeon(R) Processor @ 2.50GHz", "avx2", "Intel Xeon", ["avx2"], "intel-xeon"),
        ("Intel(R) Xeon(R) CPU", "amx_bf16", "Intel Xeon", ["amx_bf16"], "intel-xeon-amx"),
    ],
)
def test_results_are_kept_by_processor(
    monkeypatch, tmp_path, model, flags, name, extensions, folder
):
    info = f"processor\t: 0\nmodel\t\t: 207\nmodel name\t: {model}\nflags\t\t: {flags}\nbugs\t\t:\n"
    monkeypatch.setattr(report.Path, "read_text", lambda path: info)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.processor() == (name, extensions)
    assert report.speeds_folder() == tmp_path / folder
    assert (tmp_path / folder).is_dir()


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
