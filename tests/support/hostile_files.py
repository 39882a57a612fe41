"""Every reader of a file that a stranger may have made, with a valid file for it."""

import contextlib
import functools
import importlib
import io
import json
import shutil
from dataclasses import dataclass

import mutations
import numpy as np
import tensorflow as tf
import valid_files as valid
from loading import VECTORS
from tiny_bert import tiny_folder

from tf_transformer import bert, load, load_adapters
from tf_transformer.cli.bert import _vectors
from tf_transformer.compression.recipes import Recipe
from tf_transformer.data import (
    PreparedPairs,
    load_labelled_texts,
    read_documents,
    read_files,
    read_labelled_tsv,
    read_tsv,
)
from tf_transformer.errors import ArgumentError
from tf_transformer.export import VectorIndex
from tf_transformer.export.saving import load_saved_model
from tf_transformer.export.text_models import read_text_settings
from tf_transformer.export.translation.folder import read_description
from tf_transformer.layers import Architecture
from tf_transformer.litert import read_description as read_lite_description
from tf_transformer.models.bert.checkpoints.config_files import read_architecture, read_config
from tf_transformer.models.bert.checkpoints.files import H5File, SafetensorsFile, TensorflowFile
from tf_transformer.models.bert.sentence_encoder import read_pooling
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.models.hugging_face import generation_settings
from tf_transformer.tokenizers import ChatTemplate, GraphTokenizer, Tokenizer
from tf_transformer.training import (
    BestWeights,
    ResumeCheckpoint,
    average_weights,
)
from tf_transformer.visualize import training_curves


@dataclass(frozen=True)
class Reader:
    """A reader and a valid file for it.

    Attributes:
        name: str.
        make: function of a folder, which writes the valid files.
        file: str, the path of the file in the folder that is damaged.
        damage: function (random, bytes) -> bytes.
        read: function of the folder.
        errors: tuple, the documented exceptions; each message must be a line of text.
        share: float, how many of its cases run, for readers that are slow.
    """

    name: str
    make: object
    file: str
    damage: object
    read: object
    errors: tuple = (ArgumentError, FileNotFoundError)
    share: float = 1.0


def _read_config(folder):
    read_config(folder / "config.json")
    read_architecture(folder / "config.json")


def _read_tensors(file):
    for name, dtype in file.dtypes.items():
        if dtype in file.floats:
            np.asarray(tf.convert_to_tensor(file.read(name))).sum()


def _run_tokenizer(folder):
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    tokenizer.decode(tokenizer.encode(["lower é wide\U0001f600", ""], add_special_tokens=True))


def _run_graph_tokenizer(folder):
    tokenizer = GraphTokenizer.from_file(folder / "tokenizer.json")
    tokenizer.decode(tokenizer.encode(["lower é wide\U0001f600", ""]))


def _render(folder):
    ChatTemplate.read(folder).render([{"role": "user", "content": "low"}])


def _read_prepared(folder):
    pairs = PreparedPairs(folder)
    len(pairs), pairs.vocabulary
    for number in range(len(pairs.shards)):
        pairs.read(number)


def _restore(folder):
    with contextlib.redirect_stderr(io.StringIO()):
        callback = ResumeCheckpoint(folder, BestWeights(folder / "best.weights.h5"))
        callback.restore(valid.small_model())


def _sealed(members):
    """The checksum that `ResumeCheckpoint` stores, right again: what a stranger can do."""
    module = importlib.import_module("tf_transformer.training.resume_checkpoint")
    arrays = {}
    for name, content in members.items():
        with contextlib.suppress(Exception):
            arrays[name.removesuffix(".npy")] = np.load(io.BytesIO(content))
    arrays.pop("checksum", None)
    out = io.BytesIO()
    np.save(out, module._checksum(arrays))
    return {**members, "checksum.npy": out.getvalue()}


def _damaged_checkpoint(rng, data):
    if rng.randrange(2):
        return mutations.of_npz(rng, data, _sealed if rng.randrange(2) else dict)
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    state = mutations.of_content(rng, json.loads(str(arrays["state"])))
    arrays["state"] = np.array(json.dumps(state))
    module = importlib.import_module("tf_transformer.training.resume_checkpoint")
    arrays["checksum"] = module._checksum({k: v for k, v in arrays.items() if k != "checksum"})
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _open(kind):
    def read(folder):
        found = kind.open(folder)
        return found.preset, found.source.name

    return read


def _search(folder):
    index = VectorIndex(folder / "index")
    index.check_model(valid.encode)
    index.search(np.ones((2, 3), np.float32), 4)


def _read_weights(folder):
    average_weights(valid.small_model(), [folder / "best.weights.h5"])


def _read_sides(folder):
    read_pooling(folder)
    read_text_settings(folder, 11)


def _draw(folder):
    training_curves(folder / "history.csv", folder / "history.png")


J, B = mutations.of_json, mutations.of_bytes
BERT_FILES = {"config.json": J, "model.safetensors": mutations.of_safetensors}
SHARD = "shard-00000.tfrecord"
BLOCK = "model/variables/variables.index"


def _load_adapters(folder):
    load_adapters(load(VECTORS / "published" / "qwen2"), folder / "adapters")


READERS = [
    Reader(
        "BERT config", valid.json_file("config.json", valid.CONFIG), "config.json", J, _read_config
    ),
    Reader(
        "generation config",
        valid.json_file("generation_config.json", valid.GENERATION),
        "generation_config.json",
        J,
        generation_settings,
    ),
    *(
        Reader(
            f"BERT folder, {file}",
            lambda folder: tiny_folder(folder / "model"),
            f"model/{file}",
            damage,
            lambda folder: bert.Bert.from_pretrained(folder / "model"),
            share=0.3,
        )
        for file, damage in BERT_FILES.items()
    ),
    Reader(
        "BERT folder with an architecture",
        valid.with_positions,
        "model/config.json",
        J,
        lambda folder: bert.Bert.from_pretrained(folder / "model"),
        share=0.3,
    ),
    Reader(
        "safetensors",
        lambda folder: tiny_folder(folder / "model"),
        "model/model.safetensors",
        mutations.of_safetensors,
        lambda folder: _read_tensors(SafetensorsFile(folder / "model")),
    ),
    Reader(
        "tf_model.h5",
        lambda folder: shutil.copy(VECTORS / "bert_h5" / "BertModel.h5", folder),
        "BertModel.h5",
        B,
        lambda folder: _read_tensors(H5File(folder / "BertModel.h5")),
    ),
    *(
        Reader(
            f"published {name}, {file}",
            functools.partial(valid.published, name),
            f"{name}/{file}",
            damage,
            lambda folder, name=name: load(folder / name),
            share=0.3,
        )
        for name in ("llama3", "bart", "t5")
        for file, damage in BERT_FILES.items()
    ),
    *(
        Reader(
            f"adapters, {file}",
            valid.adapters,
            f"adapters/{file}",
            damage,
            _load_adapters,
            share=0.3,
        )
        for file, damage in {
            "adapter_config.json": J,
            "adapter_model.safetensors": mutations.of_safetensors,
        }.items()
    ),
    Reader(
        "safetensors index",
        valid.two_parts,
        "model.safetensors.index.json",
        J,
        lambda folder: _read_tensors(SafetensorsFile(folder)),
    ),
    *(
        Reader(
            f"TensorFlow checkpoint, {part}",
            valid.tensorflow_checkpoint,
            f"model.ckpt.{part}",
            damage,
            lambda folder: _read_tensors(TensorflowFile(folder / "model.ckpt")),
        )
        for part, damage in {"index": mutations.of_bundle, "data-00000-of-00001": B}.items()
    ),
    *(
        Reader(
            f"tokenizer.json, {kind}", valid.tokenizer(kind), "tokenizer.json", J, _run_tokenizer
        )
        for kind in ("bpe", "wordpiece", "unigram")
    ),
    *(
        Reader(f"chat template, {file}", valid.chat_template(file), file, damage, _render)
        for file, damage in (("tokenizer_config.json", J), ("chat_template.jinja", B))
    ),
    *(
        Reader(
            f"tokenizer.json, {kind}, in a graph",
            valid.tokenizer(kind),
            "tokenizer.json",
            J,
            _run_graph_tokenizer,
            share=0.1,
        )
        for kind in ("bpe", "wordpiece", "unigram")
    ),
    Reader(
        "SentencePiece model",
        valid.sentencepiece,
        "spiece.model",
        B,
        lambda folder: GraphTokenizer.from_file(folder / "spiece.model").encode(["ab a"]),
        share=0.1,
    ),
    *(
        Reader(file, valid.vocabulary, file, damage, read_tokenizer_file)
        for file, damage in {"vocab.txt": B, "tokenizer_config.json": J}.items()
    ),
    Reader(
        "architecture.json",
        valid.json_file("architecture.json", valid.ARCHITECTURE),
        "architecture.json",
        J,
        lambda folder: Architecture.from_json((folder / "architecture.json").read_bytes()),
    ),
    Reader(
        "recipe",
        valid.json_file("recipe.json", valid.RECIPE),
        "recipe.json",
        J,
        lambda folder: Recipe.read(folder / "recipe.json"),
    ),
    Reader(
        "TSV",
        valid.text_file("pairs.tsv", valid.PAIRS),
        "pairs.tsv",
        B,
        lambda folder: read_tsv(folder / "pairs.tsv"),
    ),
    Reader(
        "gzipped TSV", valid.gzipped, "pairs.tsv", B, lambda folder: read_tsv(folder / "pairs.tsv")
    ),
    Reader(
        "two files",
        valid.two_sides,
        "text.fr",
        B,
        lambda folder: read_files(folder / "text.en", folder / "text.fr"),
    ),
    Reader(
        "documents",
        valid.text_file("texts.txt", "a\nb\n\nc\n"),
        "texts.txt",
        B,
        lambda folder: read_documents(folder / "texts.txt"),
    ),
    Reader(
        "labelled TSV",
        valid.text_file("train.tsv", valid.LABELLED),
        "train.tsv",
        B,
        lambda folder: read_labelled_tsv(folder / "train.tsv"),
    ),
    *(
        Reader(
            f"archive of {name}",
            make,
            "archive",
            B,
            lambda folder, name=name: load_labelled_texts(name, folder / "archive"),
        )
        for name, make in {"trec-6": valid.trec, "zh-reviews": valid.reviews}.items()
    ),
    Reader("prepared.json", valid.prepared, "prepared.json", J, _read_prepared),
    Reader("shard", valid.prepared, SHARD, mutations.of_tfrecord, _read_prepared),
    Reader(
        "checkpoint",
        valid.resume_checkpoint,
        "epoch-00000-step-00000000.npz",
        _damaged_checkpoint,
        _restore,
    ),
    *(
        Reader(f"run.json of a {name}", valid.run_folder(*run), "run.json", J, _open(run[0]))
        for name, run in valid.RUNS.items()
    ),
    *(
        Reader(
            f"model of the run of a {name}",
            valid.with_weights(valid.run_folder(*run), run[0]),
            "run.json",
            J,
            lambda folder, kind=run[0]: kind.open(folder).best_model(),
            share=0.1,
        )
        for name, run in valid.RUNS.items()
    ),
    *(
        Reader(
            f"vector index, {file}, {dtype}",
            valid.index(dtype),
            f"index/{file}",
            damage,
            _search,
        )
        for dtype, file, damage in (
            ("float32", "vector_index.json", J),
            ("float32", "vectors.npy", mutations.of_npy),
            ("float32", "probes.npy", mutations.of_npy),
            ("int8", "vectors.npy", mutations.of_npy),
            ("int8", "scales.npy", mutations.of_npy),
            ("pq", "vectors.faiss", B),
            ("hnsw", "vectors.faiss", B),
        )
    ),
    Reader(
        "vectors",
        lambda folder: np.save(folder / "x.npy", np.ones((2, 3), np.float32)),
        "x.npy",
        mutations.of_npy,
        lambda folder: _vectors(folder / "x.npy"),
    ),
    Reader("weights", valid.saved_weights, "best.weights.h5", B, _read_weights),
    Reader("translator.json", valid.translator, "translator.json", J, read_description),
    Reader(
        "litert.json",
        valid.json_file("litert.json", {"kind": "classifier", "lowercase": True}),
        "litert.json",
        J,
        read_lite_description,
    ),
    *(
        Reader(f"sentence encoder, {file}", valid.pooling, file, J, _read_sides)
        for file in (
            "modules.json",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "sentence_bert_config.json",
            "config_sentence_transformers.json",
        )
    ),
    Reader(
        "history.csv",
        valid.text_file("history.csv", valid.HISTORY),
        "history.csv",
        B,
        _draw,
        share=0.1,
    ),
    *(
        Reader(
            f"SavedModel, {file}",
            valid.saved_model,
            f"model/variables/{file}",
            damage,
            lambda folder: load_saved_model(folder / "model"),
            share=0.1,
        )
        for file, damage in {
            "variables.index": mutations.of_bundle,
            "variables.data-00000-of-00001": B,
        }.items()
    ),
]
