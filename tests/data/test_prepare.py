"""Prepared shards contain every pair once, despite interruptions and with any number of workers."""

import importlib
import json
from collections import Counter

import pytest

from tf_transformer.data import PairSource, PreparedPairs, prepare_pairs, split_pairs
from tf_transformer.data.source import comparable
from tf_transformer.tokenizers import Tokenizer, train_subwords

pytestmark = pytest.mark.one_of(10, "texts")

module = importlib.import_module("tf_transformer.data.preparing")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "_LINES", 97)
    monkeypatch.setattr(module, "_PAIRS", 211)


def pairs_of(count):
    """Some pairs twice, some sources with two targets."""
    words = ["low", "lower", "lowest", "new", "newer", "newest", "wide", "wider", "widest"]
    found = []
    for n in range(count):
        text = " ".join(words[(n * k) % 9] for k in (1, 2, 4, 5)) + f" {n % (count - 40)}"
        found.append((text, f"{text[::-1]} {n // 300}"))
    return found


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs_of(1031)))
    return path


def prepared(file, folder, **options):
    return PreparedPairs(
        prepare_pairs(PairSource(tsv=str(file)), folder, vocab_size=300, **options)
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_pair_once_and_no_sentence_in_two_sets(file, tmp_path):
    found = prepared(file, tmp_path / "prepared")
    assert len(found.shards) == 5 and min(shard["pairs"] for shard in found.shards) > 150
    held_out = {name: found.held_out(name) for name in ("validation", "test")}
    assert [len(pairs) for pairs in held_out.values()] == [20, 20]
    sentences = {
        name: {comparable(text) for pair in pairs for text in pair}
        for name, pairs in {**held_out, "train": list(found)}.items()
    }
    assert sentences["test"].isdisjoint(sentences["validation"])
    held = sentences["test"] | sentences["validation"]
    assert sentences["train"].isdisjoint(held)
    expected = [pair for pair in pairs_of(1031) if held.isdisjoint(map(comparable, pair))]
    assert Counter(found) == Counter(expected) and len(found) == len(expected)
    assert found[3:9] == list(found)[3:9]
    assert sorted(path.name for path in found.folder.iterdir()) == [
        "prepared.json",
        *(f"shard-{n:05}.tfrecord" for n in range(5)),
        "test.tsv",
        "tokenizer.json",
        "validation.tsv",
    ]


def test_ids_are_those_of_the_tokenizer_and_sizes_are_counted(file, tmp_path):
    found = prepared(file, tmp_path / "prepared")
    tokenizer = Tokenizer.load(found.tokenizer_path)
    texts = list(found)
    rows = [found.read(number) for number in range(5)]
    for side in (0, 1):
        ids = [row.tolist() for shard in rows for row in shard[side]]
        assert ids == tokenizer.encode([pair[side] for pair in texts])
    for shard, (sources, targets) in zip(found.shards, rows, strict=True):
        sizes = Counter(max(len(s), len(t)) for s, t in zip(sources, targets, strict=True))
        assert shard["sizes"] == sizes and shard["pairs"] == len(sources)


@pytest.mark.fault
@pytest.mark.parametrize("stop", [0, 3, 11, 12, 15, 22])
def test_stopped_anywhere_and_resumed_no_part_is_done_twice(file, tmp_path, monkeypatch, stop):
    whole = prepared(file, tmp_path / "whole").folder
    done, calls = [], []
    for name in ("scan_part", "encode_part"):
        monkeypatch.setattr(module, name, noting(done, getattr(module, name)))

    def progress(*given):
        calls.append(given)
        if len(calls) == stop + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared(file, tmp_path / "stopped", progress=progress)
    assert not (tmp_path / "stopped" / "prepared.json").exists()
    before = len(done)
    again = prepared(file, tmp_path / "stopped", progress=progress).folder
    assert contents(again) == contents(whole)
    assert before == (stop if stop < 12 else stop - 1) and len(set(done)) == len(done) == 22
    assert calls[stop + 1] == ("reading", min(before, 11), 11)
    assert calls[-1] == ("tokenizing", 11, 11)


def noting(done, function):
    def noted(part, path, *others):
        function(part, path, *others)
        done.append(path)

    return noted


@pytest.mark.slow
def test_several_processes_give_the_same(file, tmp_path):
    one, two = (prepared(file, tmp_path / str(n), workers=n).folder for n in (1, 2))
    assert contents(one) == contents(two)


@pytest.mark.slow
def test_an_included_corpus_keeps_its_split_and_vocabulary(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LINES", 6000)
    monkeypatch.setattr(module, "_PAIRS", 9000)
    source = PairSource(corpus="fr-en")
    found = PreparedPairs(prepare_pairs(source, tmp_path / "prepared", vocab_size=400))
    split = split_pairs(source.load())
    assert found.held_out("test") == [tuple(pair) for pair in split.test]
    assert found.held_out("validation") == [tuple(pair) for pair in split.validation]
    assert len(found) == len(split.train)
    expected = train_subwords("bpe", [text for pair in split.train for text in pair], 400)
    text = "Où est la gare ? Where is it?"
    assert Tokenizer.load(found.tokenizer_path).encode([text]) == expected.encode([text])
    assert PairSource(prepared=str(found.folder)).target_language == "en"


def test_a_bounded_sample_and_a_validation_set(file, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE", 200)
    seen = []
    train = module.train_subwords
    monkeypatch.setattr(
        module,
        "train_subwords",
        lambda kind, texts, size: seen.append(texts) or train(kind, texts, size),
    )
    validation = tmp_path / "dev.tsv"
    validation.write_text("".join(f"{s}\t{t}\n" for s, t in pairs_of(7)))
    source = PairSource(tsv=str(validation))
    found = prepared(file, tmp_path / "prepared", validation=source)
    assert found.held_out("validation") == pairs_of(7)
    held = {comparable(text) for pair in pairs_of(7) for text in pair}
    assert held.isdisjoint(comparable(text) for pair in found for text in pair)
    [texts] = seen
    assert 300 < len(texts) <= 400
    assert set(texts) <= {text for pair in found for text in pair}


def test_bad_input(file, tmp_path):
    folder = tmp_path / "prepared"
    prepared(file, folder)
    with pytest.raises(ValueError, match="folder: expected a new folder, got .* prepared already"):
        prepared(file, folder)
    with pytest.raises(KeyboardInterrupt):
        prepared(file, tmp_path / "begun", progress=stop_at_once)
    with pytest.raises(ValueError, match="folder: expected the settings with which .* was begun"):
        prepare_pairs(PairSource(tsv=str(file)), tmp_path / "begun", vocab_size=301)
    file.write_text(file.read_text().replace("low", "slow", 1))
    with pytest.raises(ValueError, match="folder: expected the settings with which .* was begun"):
        prepared(file, tmp_path / "begun")
    with pytest.raises(ValueError, match="subword: expected one of bpe, wordpiece, unigram"):
        prepare_pairs(PairSource(tsv=str(file)), tmp_path / "new", subword="bpee")
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tb\n" * 500 + "alone\n" + "a\tb\n" * 500)
    with pytest.raises(ValueError, match="at least 2 columns .*, got 1 on line 501 of .*bad.tsv"):
        prepared(bad, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()
    few = tmp_path / "few.tsv"
    few.write_text("a\tb\n" * 9)
    with pytest.raises(ValueError, match="data: expected enough pairs for training, valid.* got 9"):
        prepared(few, tmp_path / "few")


def stop_at_once(*_):
    raise KeyboardInterrupt


@pytest.mark.fault
def test_damaged_folders(file, tmp_path):
    found = prepared(file, tmp_path / "prepared")
    path = found.folder / found.shards[2]["name"]
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(
        ValueError, match="shard-00002.*: expected the shard that was prepared, got"
    ):
        found.read(2)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="shard-00002.* damaged file .0 pairs instead of"):
        found.read(2)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="expected shard-00002.tfrecord, got no file"):
        PreparedPairs(found.folder)
    manifest = found.folder / "prepared.json"
    for content, message in (
        ({**found.manifest, "format": 9}, "expected format 1, got 9"),
        ([], "expected a prepared folder, got TypeError"),
        ({"format": 1}, "expected a prepared folder, got KeyError"),
    ):
        manifest.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            PreparedPairs(found.folder)
    manifest.write_text("{")
    with pytest.raises(ValueError, match="expected a prepared folder, got JSONDecodeError"):
        PreparedPairs(found.folder)


def test_a_system_without_affinities(monkeypatch):
    """As macOS and Windows."""
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert module.processors() == 7
