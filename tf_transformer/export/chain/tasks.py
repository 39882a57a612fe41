"""What a chain compresses and measures: translators and classifiers."""

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer import litert
from tf_transformer.compression import distilled_pairs
from tf_transformer.data import group_references, pairs_without
from tf_transformer.data.labelled_texts import load_labelled_texts, read_labelled_tsv
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.export.loading import load_saved_model
from tf_transformer.export.saving import stored
from tf_transformer.export.text_models import TextClassifier
from tf_transformer.export.translation.id_translator import calibration_batches
from tf_transformer.export.translation.translate_texts import translate_texts
from tf_transformer.export.translation.translator import (
    Translator,
    load_transformer,
    save_translator,
)
from tf_transformer.export.write_litert import litert_functions, write_litert
from tf_transformer.litert import import_interpreter
from tf_transformer.models.bert import BertForSequenceClassification, read_tokenizer
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.tokenizers import GraphTokenizer, Tokenizer, TokenizerFile
from tf_transformer.training import (
    FineTuning,
    MovingAverage,
    TrainingRun,
    WarmUpLinearDecay,
    fine_tune,
    resumable_fit,
    score_translations,
    text_batches,
)

SAVED, LITE = "saved_model", "litert"


def served(stage, method):
    """Load what a stage exported."""
    if (stage / LITE).is_dir():
        lite = litert.load(stage / LITE)
        return lite.translate if method == "translate" else lambda texts: lite.classify(texts)[0]
    saved = load_saved_model(stage / SAVED)

    def call(texts):
        answer = getattr(saved, method)(tf.constant(texts))
        strings = answer if method == "translate" else answer["label"]
        return [string.decode("utf-8") for string in strings.numpy()]

    return call


def in_batches(call, texts, rows=32):
    """Call a function with a few texts at a time."""
    starts = range(0, len(texts), rows)
    return [answer for start in starts for answer in call(texts[start : start + rows])]


_MEMORY = """
import json, sys
folder, method, texts = json.load(sys.stdin)
{run}
try:
    lines = open("/proc/self/status").read().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
except OSError:
    print("unknown")
"""
_SAVED = """
import tensorflow as tf
model = tf.saved_model.load(folder)
getattr(model, method)(tf.constant(texts))
"""
_LITE = """
from tf_transformer import litert
getattr(litert.load(folder), method)(texts)
"""


def size_of(stage):
    """The bytes of all files that a stage exported."""
    return sum(file.stat().st_size for file in _exported(stage).rglob("*") if file.is_file())


def seconds_of(calls, texts, rows, *, most=64, rounds=9):
    """Time functions in turn."""
    texts = texts[:most]
    seconds = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            in_batches(call, texts, rows)
            if turn > 1:
                seconds[name].append((time.perf_counter() - start) / -(-len(texts) // rows))
    return seconds


def relative(seconds, base):
    """The median of the ratios of two lists of times, measured in turn."""
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


def peak_memory(stage, method, texts):
    """The peak memory of a process of its own that loads an export and runs it once."""
    program = _MEMORY.format(run=_LITE if (stage / LITE).is_dir() else _SAVED)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([str(_exported(stage).resolve()), method, texts]),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"{stage}: expected a model that runs in a process of its own, got "
            f"{done.stderr.strip().splitlines()[-1]}"
        )
    answer = done.stdout.split()[-1]
    return None if answer == "unknown" else 1024 * int(answer)


def _exported(stage):
    return stage / (LITE if (stage / LITE).is_dir() else SAVED)


LEARNING_RATE = 5e-4
WARM_UP = 0.1  # of all steps


class TranslatorTask:
    """What the steps of a recipe need to know of a translator."""

    method, score_name = "translate", "BLEU"

    def __init__(self, folder, command):
        self.run = TrainingRun.open(folder)
        if self.run.source.prepared:
            raise ArgumentError(
                "model", "a run on pairs that fit into memory", f"{folder}, on prepared shards"
            )
        self.command = command
        self.model = self.run.best_model()
        self.tokenizer = GraphTokenizer.from_file(self.run.tokenizer_path)
        self.texts, self._references = group_references(self.run.split.test)

    def load(self, stage):
        """The model of a stage: `Transformer`."""
        model, _ = load_transformer(stage / SAVED)
        return model

    def examples(self):
        """Batches of training pairs."""
        return calibration_batches(self.tokenizer, self.run.split.train)

    def compile(self, model):
        """Give the model its loss, for the importance of heads."""
        self.run.compile(model, LEARNING_RATE)

    def train(self, model, step, folder, pairs=None):
        """Train a smaller model, resumably, on pairs or those of the run."""
        tokenizer = Tokenizer.load(self.run.tokenizer_path)
        repeats = self.run.preset.short_repeats
        batches = self.run.batches(tokenizer, pairs or self.run.split.train, repeats)
        total = batches.steps_per_epoch * step.epochs
        peak = step.learning_rate or LEARNING_RATE
        self.run.compile(model, WarmUpLinearDecay(peak, int(WARM_UP * total), total))
        resumable_fit(
            model,
            batches,
            self.run.batches(tokenizer, self.run.split.validation),
            folder,
            epochs=step.epochs,
            average=MovingAverage(),
        )

    def distil(self, distiller, teacher, step, folder):
        """Train a student on its teacher's translations and predictions."""
        sources = list(dict.fromkeys(source for source, _ in self.run.split.train))
        translator = Translator(teacher, self.tokenizer)
        translated = distilled_pairs(
            lambda texts: translate_texts(translator, texts, beam=True),
            sources,
            folder / "translations",
            progress=lambda done: print(f"{done:,} of {len(sources):,} translated", flush=True),
        )
        held_out = self.run.split.validation + self.run.split.test
        pairs = self.run.split.train + pairs_without(translated, held_out)
        self.train(distiller, step, folder / "training", pairs)

    def check(self, model, quantize):
        """Refuse what cannot be exported."""
        if quantize.runtime == "litert":
            import_interpreter()
            litert_functions(model)

    def export(self, model, stage, quantize=None):
        """Write the model to a folder and score it."""
        if quantize is not None and quantize.runtime == "litert":
            write_litert(
                model,
                TokenizerFile.read(self.run.tokenizer_path),
                stage / LITE,
                weights_dtype=quantize.dtype,
                examples=[source for source, _ in self.run.split.train[:256]],
            )
            return self._scores(served(stage, self.method)(self.texts))["bleu"]
        dtype = "float32" if quantize is None else quantize.dtype
        static = quantize is not None and quantize.ranges == "static"
        translator = Translator(
            stored(model, dtype, self.examples() if static else None), self.tokenizer
        )
        scores = self._scores(translate_texts(translator, self.texts))
        description = {
            **self.run.description(),
            "model": model.get_config(),
            "weights": model.count_params(),
            "weights_dtype": dtype,
            "scores": scores,
            "command": self.command,
            "decoding": json.loads(translator.decoding.settings),
        }
        save_translator(translator, stage / SAVED, description)
        return scores["bleu"]

    def _scores(self, translations):
        language = self.run.source.target_language
        return score_translations(translations, self._references, language)


SEEN = 256  # training texts that measure importance, and the ranges of int8


class ClassifierTask:
    """What the steps of a recipe need to know of a classifier."""

    method, score_name = "classify", "accuracy, %"

    def __init__(self, folder, data, **fit_options):
        folder = Path(folder)
        if not (folder / "result.json").is_file() or not (folder / "model").is_dir():
            raise MissingFileError("model", "the output of finetune", folder)
        result = json.loads((folder / "result.json").read_text("utf-8"))
        if "early_exit" in result:
            raise ArgumentError("model", "one without exits", f"early exit in {folder}")
        self.settings = FineTuning(**result["settings"])
        self.data = _texts(data)
        if not self.data.test:
            raise ArgumentError("data", "texts for the test", "none")
        self.vocabulary = folder / "model"
        self.tokenizer = read_tokenizer(self.vocabulary)
        self.model = self.load(folder)
        if self.model.config.labels != self.data.labels:
            raise ArgumentError(
                "data",
                f"the classes of the model, {', '.join(self.model.config.labels)}",
                ", ".join(self.data.labels),
            )
        self.texts = [text for text, _ in self.data.test]
        self._fit_options = fit_options

    def load(self, stage):
        """The model of a stage: `BertForSequenceClassification`."""
        return BertForSequenceClassification.from_pretrained(stage / "model", unpad=True)

    def examples(self):
        """Batches of training texts."""
        return list(text_batches(self.tokenizer, self.data.train[:SEEN], self.settings))

    def compile(self, model):
        """Give the model its loss, for the importance of heads."""
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def train(self, model, step, folder):
        """Train a smaller model; a training takes minutes and is not resumed."""
        # Whole batches: the losses of a distiller are not those of its parts.
        changes = {"epochs": step.epochs, "accumulate": 1}
        if step.learning_rate is not None:
            changes["learning_rate"] = step.learning_rate
        settings = dataclasses.replace(self.settings, **changes)
        fine_tune(model, self.tokenizer, self.data, settings, **self._fit_options)

    def distil(self, distiller, teacher, step, folder):
        """Train a student to imitate its teacher."""
        self.train(distiller, step, folder)

    def check(self, model, quantize):
        """Refuse what cannot be exported: see `export`."""
        if quantize.runtime == "litert":
            import_interpreter()
            litert_functions(model)

    def export(self, model, stage, quantize=None):
        """Write the model to a folder and score what was written."""
        length = self.settings.max_length
        if quantize is not None and quantize.runtime == "litert":
            write_litert(
                model,
                read_tokenizer_file(self.vocabulary),
                stage / LITE,
                weights_dtype=quantize.dtype,
                examples=[text for text, _ in self.data.train[:SEEN]],
                max_length=length,
            )
        elif quantize is not None:
            batches = self.examples() if quantize.ranges == "static" else None
            smaller = stored(model, quantize.dtype, batches)
            TextClassifier(smaller, self.tokenizer, length).save(stage / SAVED)
        else:
            model.save_pretrained(stage / "model", tokenizer_from=self.vocabulary)
            TextClassifier(model, self.tokenizer, length).save(stage / SAVED)
        found = in_batches(served(stage, self.method), self.texts)
        hits = [
            self.data.labels[label] == answer
            for (_, label), answer in zip(self.data.test, found, strict=True)
        ]
        return 100 * sum(hits) / len(hits)


def _texts(data):
    if ("train" in data) == ("set" in data):
        raise ArgumentError("data", "train or set", "both or neither")
    if "train" in data:
        return read_labelled_tsv(data["train"], data.get("validation"), data.get("test"))
    if "archive" not in data:
        raise ArgumentError("data", "the archive that contains the set", "none")
    return load_labelled_texts(data["set"], data["archive"])
