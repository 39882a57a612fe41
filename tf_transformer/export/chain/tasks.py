"""What a chain compresses: translators and classifiers."""

import json
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer import litert
from tf_transformer.compression import distilled_pairs
from tf_transformer.data import group_references, pairs_without
from tf_transformer.data.labelled_texts import load_labelled_texts, read_labelled_tsv
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.export.saving import calibration_batches, load_saved_model, stored
from tf_transformer.export.text_models import TextClassifier
from tf_transformer.export.translation.folder import load_transformer, save_translator
from tf_transformer.export.translation.translate_texts import translate_texts
from tf_transformer.export.translation.translator import Translator
from tf_transformer.export.write_litert import write_litert
from tf_transformer.models.bert import BertForSequenceClassification, read_tokenizer
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.tokenizers import GraphTokenizer, TokenizerFile
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
SEEN = 256  # training texts that measure importance, and the ranges of int8
LEARNING_RATE = 5e-4  # of a translator
WARM_UP = 0.1  # of all steps


def exported(stage):
    """Return the exported folder of a stage."""
    return stage / (LITE if (stage / LITE).is_dir() else SAVED)


def served(stage, method):
    """Load the export of a stage as a function of texts."""
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


class TranslatorTask:
    """The operations on a translator that recipe steps use."""

    method, score_name = "translate", "BLEU"

    def __init__(self, folder):
        self.run = TrainingRun.open(folder)
        if self.run.source.prepared:
            raise ArgumentError(
                "model", "a run on pairs that fit into memory", f"{folder}, on prepared shards"
            )
        self.model = self.run.best_model()
        self.tokenizer = GraphTokenizer.from_file(self.run.tokenizer_path)
        self.texts, self._references = group_references(self.run.split.test)

    def load(self, stage):
        """The model of a stage: `Transformer`."""
        return load_transformer(stage / SAVED)[0]

    def examples(self):
        """Batches of training pairs."""
        return calibration_batches(self.tokenizer, self.run.split.train)

    def compile(self, model):
        """Give the model its loss, for the importance of heads."""
        self.run.compile(model, LEARNING_RATE)

    def train(self, model, step, folder, pairs=None):
        """Train a smaller model, resumably, on `pairs` or the pairs of the run."""
        tokenizer, split = self.run.tokenizer, self.run.split
        batches = self.run.batches(tokenizer, pairs or split.train, self.run.preset.short_repeats)
        total = batches.steps_per_epoch * step.epochs
        peak = step.learning_rate or LEARNING_RATE
        self.run.compile(model, WarmUpLinearDecay(peak, int(WARM_UP * total), total))
        validation = self.run.batches(tokenizer, split.validation)
        average = MovingAverage()
        resumable_fit(model, batches, validation, folder, epochs=step.epochs, average=average)

    def distil(self, distiller, teacher, step, folder):
        """Train a student on its teacher's translations and predictions."""
        split = self.run.split
        sources = list(dict.fromkeys(source for source, _ in split.train))
        translator = Translator(teacher, self.tokenizer)
        translated = distilled_pairs(
            lambda texts: translate_texts(translator, texts, beam=True),
            sources,
            folder / "translations",
            progress=lambda done: print(f"{done:,} of {len(sources):,} translated", flush=True),
        )
        pairs = split.train + pairs_without(translated, split.validation + split.test)
        self.train(distiller, step, folder / "training", pairs)

    def export(self, model, stage, quantize=None):
        """Write the model to a folder; return its score."""
        if quantize is not None and quantize.runtime == "litert":
            write_litert(
                model,
                TokenizerFile.read(self.run.tokenizer_path),
                stage / LITE,
                weights_dtype=quantize.dtype,
                examples=[source for source, _ in self.run.split.train[:SEEN]],
            )
            return self._scores(served(stage, self.method)(self.texts))["bleu"]
        translator = Translator(_stored(model, quantize, self), self.tokenizer)
        scores = self._scores(translate_texts(translator, self.texts))
        description = {
            **self.run.description(),
            "model": model.get_config(),
            "weights": model.count_params(),
            "weights_dtype": "float32" if quantize is None else quantize.dtype,
            "scores": scores,
            "command": "tf-transformer compress recipe.json",
            "decoding": json.loads(translator.decoding.settings),
        }
        save_translator(translator, stage / SAVED, description)
        return scores["bleu"]

    def _scores(self, translations):
        language = self.run.source.target_language
        return score_translations(translations, self._references, language)


class ClassifierTask:
    """The operations on a classifier that recipe steps use."""

    method, score_name = "classify", "accuracy, %"

    def __init__(self, folder, data, **fit_options):
        folder = Path(folder)
        if not (folder / "result.json").is_file() or not (folder / "model").is_dir():
            raise MissingFileError("model", "the output of finetune or a training run", folder)
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
        # Whole batches: the losses of a distiller would differ in parts.
        changes = {"epochs": step.epochs, "learning_rate": step.learning_rate, "accumulate": 1}
        settings = self.settings.with_changes(changes)
        fine_tune(model, self.tokenizer, self.data, settings, **self._fit_options)

    def distil(self, distiller, teacher, step, folder):
        """Train a student to imitate its teacher."""
        self.train(distiller, step, folder)

    def export(self, model, stage, quantize=None):
        """Write the model to a folder; return the score of what was written."""
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
        else:
            if quantize is None:
                model.save_pretrained(stage / "model", tokenizer_from=self.vocabulary)
            smaller = _stored(model, quantize, self)
            TextClassifier(smaller, self.tokenizer, length).save(stage / SAVED)
        found = in_batches(served(stage, self.method), self.texts)
        pairs = zip(self.data.test, found, strict=True)
        hits = [self.data.labels[label] == answer for (_, label), answer in pairs]
        return 100 * sum(hits) / len(hits)


def _stored(model, quantize, task):
    """Return the model to store: in float32, or as the step specifies."""
    if quantize is None:
        return model
    batches = task.examples() if quantize.ranges == "static" else None
    return stored(model, quantize.dtype, batches)


def _texts(data):
    if ("train" in data) == ("set" in data):
        raise ArgumentError("data", "train or set", "both or neither")
    if "train" in data:
        return read_labelled_tsv(data["train"], data.get("validation"), data.get("test"))
    if "archive" not in data:
        raise ArgumentError("data", "the archive that contains the set", "none")
    return load_labelled_texts(data["set"], data["archive"])
