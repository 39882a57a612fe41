"""The training, the score and the export of a classifier that a recipe makes smaller."""

import dataclasses
import json
from pathlib import Path

import keras

from tf_transformer.data.labelled_texts import load_labelled_texts, read_labelled_tsv
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.export.chain.served import LITE, SAVED, in_batches, served
from tf_transformer.export.classification import TextClassifier
from tf_transformer.export.litert.write_litert import write_litert
from tf_transformer.export.litert.litert_functions import litert_functions
from tf_transformer.export.stored_weights import stored
from tf_transformer.litert.lite_model import import_interpreter
from tf_transformer.models.bert import BertForSequenceClassification, read_tokenizer
from tf_transformer.models.bert.text_inputs import read_tokenizer_file
from tf_transformer.training import FineTuning, fine_tune, text_batches

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
