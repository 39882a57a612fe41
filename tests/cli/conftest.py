"""Training runs that the tests of the translation commands share; no test may modify them."""

import pytest
from command_line import command, command_here


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """Return a file of 300 pairs."""
    from tf_transformer.data import load_corpus

    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"{source}\t{target}\n" for source, target in load_corpus("en-fr")[:300]]
    file.write_text("".join(lines), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def run(pairs, tmp_path_factory):
    """Train once; return the run's folder and the completed process."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = command("train", "--tsv", pairs, "--preset", "tiny", "--output", folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder, done


@pytest.fixture(scope="session")
def other_run(pairs, tmp_path_factory):
    """Train with another seed, on a file given relative to its folder; return the run's folder."""
    folder = tmp_path_factory.mktemp("cli") / "other"
    arguments = ["--tsv", pairs.name, "--preset", "tiny", "--seed", "2", "--output", folder]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(pairs.parent)
        done = command_here("train", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return folder
