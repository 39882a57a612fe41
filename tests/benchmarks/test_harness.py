"""The benchmark harness: environments of the peers, and the report of a failing peer."""

import platform
import subprocess
import sys

import pytest

from benchmarks.harness import arena, environments, report


@pytest.mark.parametrize(
    ("model", "flags", "name", "folder"),
    [
        ("AMD EPYC", "avx2 avx512f avx512_bf16", "AMD EPYC", "amd-epyc-avx512-bf16"),
        ("AMD EPYC", "sse avx2", "AMD EPYC", "amd-epyc-avx2"),
        (
            "Intel(R) Xeon(R) CPU @ 2.5GHz",
            "avx2 avx512f",
            "Intel Xeon CPU @ 2.5GHz",
            "intel-xeon-avx512",
        ),
        (
            "Intel(R) Xeon(R) Processor",
            "avx512f amx_bf16",
            "Intel Xeon Processor",
            "intel-xeon-amx",
        ),
    ],
)
def test_speeds_are_kept_by_processor(monkeypatch, tmp_path, model, flags, name, folder):
    info = f"model\t\t: 207\nmodel name\t: {model}\nflags\t\t: {flags}\nbugs\t\t:\n"
    (tmp_path / "cpuinfo").write_text(info, "utf-8")
    monkeypatch.setattr(report, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.processor() == (name, [flag for flag in flags.split() if flag != "sse"])
    report.write_result("table", "A table", ["| |"])
    text = (tmp_path / folder / "table.md").read_text("utf-8")
    assert f"cores of {name} ({' '.join(report.processor()[1])})" in text
    report.write_json("seconds", {"ours": {"seconds": [0.1234567]}})
    assert "0.123457" in (tmp_path / folder / "seconds.json").read_text("utf-8")
    report.write_result("score", "A score", ["| |"], folder=tmp_path / "scores")
    assert (tmp_path / "scores" / "score.md").is_file()


def test_a_processor_without_a_name(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\n", "utf-8")
    monkeypatch.setattr(report, "_CPUINFO", tmp_path / "cpuinfo")
    assert report.processor() == (platform.machine(), [])


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
