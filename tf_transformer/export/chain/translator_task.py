"""The training, the score and the export of a translator that a recipe makes smaller."""

import json

from tf_transformer.compression import distilled_pairs
from tf_transformer.data import group_references, pairs_without
from tf_transformer.errors import ArgumentError
from tf_transformer.export.chain.served import LITE, SAVED, served
from tf_transformer.export.litert.write_litert import write_litert
from tf_transformer.export.litert.litert_functions import litert_functions
from tf_transformer.export.stored_weights import stored
from tf_transformer.export.translation.calibration import calibration_batches
from tf_transformer.export.translation.saved_translator import load_transformer, save_translator
from tf_transformer.export.translation.translate_texts import translate_texts
from tf_transformer.export.translation.translator import Translator
from tf_transformer.litert.lite_model import import_interpreter
from tf_transformer.tokenizers import GraphTokenizer, Tokenizer, TokenizerFile
from tf_transformer.training import (
    MovingAverage,
    TrainingRun,
    WarmUpLinearDecay,
    resumable_fit,
    score_translations,
)

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
