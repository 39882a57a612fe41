"""Compressing a model in stages, with measurements of each: the steps of a recipe carried out."""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer import litert
from tf_transformer.compression import distilled_pairs
from tf_transformer.compression.recipes import Quantize
from tf_transformer.data import group_references, pairs_without
from tf_transformer.data.files import replacing, write_json
from tf_transformer.data.labelled_texts import load_labelled_texts, read_labelled_tsv
from tf_transformer.errors import (
    ArgumentError,
    ExistingFileError,
    MissingFileError,
    MissingPackage,
    check,
)
from tf_transformer.export.saving import calibration_batches, load_saved_model, stored
from tf_transformer.export.text_models import TextClassifier
from tf_transformer.export.translation.folder import load_transformer, save_translator
from tf_transformer.export.translation.translate_texts import translate_texts
from tf_transformer.export.translation.translator import Translator
from tf_transformer.export.write_litert import litert_functions, write_litert
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

RECIPE, STAGE, RESULTS, PLOT = "recipe.json", "stage.json", "results.json", "results.png"
SAVED, LITE = "saved_model", "litert"
ROWS = (1, 32)  # texts of a call that is timed
SEEN = 256  # training texts that measure importance, and the ranges of int8
LEARNING_RATE = 5e-4  # of a translator
WARM_UP = 0.1  # of all steps


def compress(recipe, folder, **fit_options):
    """Compress a model step by step, and measure the quality, size and speed after each step.

    Every step writes a folder, `0-original`, `1-distil` and so on, with the export in `saved_model`
    or `litert`, and for classifiers the model in `model`; the same call resumes at the first
    missing one. At the end, all are measured: `results.json`, `README.md` and `results.png`.

    Args:
        recipe: `Recipe`.
        folder: str or Path, new or from an earlier call with the same recipe.
        fit_options: arguments of `model.fit` for classifiers: verbose.

    Returns:
        list of dict, one for each stage: `name`, `score`, `weights`, `bytes`, `seconds` for one
        text and for 32, `relative_time`, `peak_memory`.

    Raises:
        FileExistsError: If the folder has other content or another recipe.
        ImportError: If Matplotlib, or ai-edge-litert for a step that needs it, is not installed.
        FileNotFoundError, ValueError: If the model or the data cannot be read, or a step does not
            fit the model. Nothing is trained or written then.

    Example:
        >>> from tf_transformer.compression.recipes import Recipe
        >>> compress(Recipe("nowhere", (Quantize(),)), "smaller")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: model: expected the output of finetune or a training
        run, got nowhere.
    """
    folder = Path(folder)
    _import_figure()
    _check_folder(folder, recipe)
    task = _task(recipe, fit_options)
    _rehearse(recipe, task.model)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECIPE, recipe.to_dict())
    steps = (None, *recipe.steps)
    names = ["original", *(step.name for step in recipe.steps)]
    stages = [folder / f"{n}-{name}" for n, name in enumerate(names)]
    first = [*((stage / STAGE).is_file() for stage in stages), False].index(False)
    for n, stage in enumerate(stages):
        if n != first:  # left when a process was killed
            shutil.rmtree(_unfinished(stage), ignore_errors=True)
        if n > first:  # made from another model than the one to come
            shutil.rmtree(stage, ignore_errors=True)
    if first < len(stages):
        (folder / RESULTS).unlink(missing_ok=True)
        whole = [stages[n] for n in range(first) if not isinstance(steps[n], Quantize)]
        model = task.load(whole[-1]) if whole else task.model
        for stage, step in zip(stages[first:], steps[first:], strict=True):
            model = _make_stage(stage, step, model, task)
    if not (folder / RESULTS).is_file():
        write_json(folder / RESULTS, _measured(task, stages))
    results = json.loads((folder / RESULTS).read_text("utf-8"))
    write_report(results, folder, f"{Path(recipe.model).name}, smaller", task.score_name)
    return results


def _check_folder(folder, recipe):
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        content = json.loads((folder / RECIPE).read_text("utf-8"))
    except (OSError, ValueError):  # missing, or not ours
        content = None
    if content != json.loads(json.dumps(recipe.to_dict())):  # a file has lists for tuples
        expected = "a new folder, or that of the same recipe, which would be resumed"
        got = "another recipe" if isinstance(content, dict) else "other content"
        raise ExistingFileError("folder", expected, got, place=folder)


def _task(recipe, fit_options):
    if not (Path(recipe.model) / "run.json").is_file():
        return ClassifierTask(recipe.model, recipe.data, **fit_options)
    check(not recipe.data, "data", "none, since the run has its own", "some")
    return TranslatorTask(recipe.model)


def _rehearse(recipe, model):
    """Apply all cuts without training, to find errors beforehand."""
    for n, step in enumerate(recipe.steps):
        try:
            model = step.rehearse(model)
            if isinstance(step, Quantize) and step.runtime == "litert":
                litert.import_interpreter()
                litert_functions(model)
        except ArgumentError as error:
            raise error.inside(f"steps[{n}], {step.name}") from error


def _make_stage(stage, step, model, task):
    """Make one folder; return the model after the step."""
    if step is not None:
        print(f"{stage.name}: {step}", flush=True)
        model = step.apply(model, task, _unfinished(stage))
    with replacing(stage, only_with=STAGE) as beside:
        beside.mkdir()
        score = task.export(model, beside, step if isinstance(step, Quantize) else None)
        write_json(beside / STAGE, {"score": score, "weights": model.count_params()})
    shutil.rmtree(_unfinished(stage), ignore_errors=True)
    print(f"{stage.name}: {task.score_name} {score:.2f}", flush=True)
    return model


def _unfinished(stage):
    return stage.with_name(f"{stage.name}.unfinished")


class TranslatorTask:
    """The operations on a translator that recipe steps use."""

    method, score_name = "translate", "BLEU"

    def __init__(self, folder):
        self.run = TrainingRun.open(folder)
        if self.run.source.prepared:
            expected = "a run on pairs that fit into memory"
            raise ArgumentError("model", expected, f"{folder}, on prepared shards")
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
            file = TokenizerFile.read(self.run.tokenizer_path)
            texts = [source for source, _ in self.run.split.train[:SEEN]]
            write_litert(model, file, stage / LITE, weights_dtype=quantize.dtype, examples=texts)
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
        check("early_exit" not in result, "model", "one without exits", f"early exit in {folder}")
        self.settings = FineTuning(**result["settings"])
        self.data = _labelled_texts(data)
        check(self.data.test, "data", "texts for the test", "none")
        self.vocabulary = folder / "model"
        self.tokenizer = read_tokenizer(self.vocabulary)
        self.model = self.load(folder)
        labels = self.model.config.labels
        if labels != self.data.labels:
            expected = f"the classes of the model, {', '.join(labels)}"
            raise ArgumentError("data", expected, ", ".join(self.data.labels))
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
            file = read_tokenizer_file(self.vocabulary)
            texts = [text for text, _ in self.data.train[:SEEN]]
            options = {"weights_dtype": quantize.dtype, "max_length": length}
            write_litert(model, file, stage / LITE, examples=texts, **options)
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
    return stored(model, quantize.dtype, task.examples() if quantize.ranges == "static" else None)


def _labelled_texts(data):
    check(("train" in data) != ("set" in data), "data", "train or set", "both or neither")
    if "train" in data:
        return read_labelled_tsv(data["train"], data.get("validation"), data.get("test"))
    check("archive" in data, "data", "the archive that contains the set", "none")
    return load_labelled_texts(data["set"], data["archive"])


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


def _measured(task, stages):
    print("measuring", flush=True)
    calls = {stage.name: served(stage, task.method) for stage in stages}
    times = {rows: seconds_of(calls, task.texts, rows) for rows in ROWS}
    results = []
    for stage in stages:
        own = {rows: times[rows][stage.name] for rows in ROWS}
        first = {rows: times[rows][stages[0].name] for rows in ROWS}
        files = [file for file in exported(stage).rglob("*") if file.is_file()]
        result = {
            "name": stage.name,
            **json.loads((stage / STAGE).read_text("utf-8")),
            "bytes": sum(file.stat().st_size for file in files),
            "seconds": {rows: sorted(own[rows]) for rows in ROWS},
            "relative_time": {rows: relative(own[rows], first[rows]) for rows in ROWS},
            "peak_memory": peak_memory(stage, task.method, task.texts[: ROWS[-1]]),
        }
        results.append(result)
    return results


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
    """Return the median ratio of two lists of times, measured in turn."""
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


# Measures peak memory in a separate process, which imports only what it needs.
_MEMORY = """
import json, sys
folder, is_lite, method, texts = json.load(sys.stdin)
if is_lite:
    from tf_transformer import litert
    getattr(litert.load(folder), method)(texts)
else:
    import tensorflow as tf
    model = tf.saved_model.load(folder)
    getattr(model, method)(tf.constant(texts))
try:
    lines = open("/proc/self/status").read().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
except OSError:
    print("unknown")
"""


def peak_memory(stage, method, texts):
    """Return the peak memory of a separate process that loads an export and runs it once."""
    given = json.dumps([str(exported(stage).resolve()), (stage / LITE).is_dir(), method, texts])
    command = [sys.executable, "-c", _MEMORY]
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        raise RuntimeError(f"{stage}: expected a model that runs in another process, got {last}")
    answer = done.stdout.split()[-1]
    return None if answer == "unknown" else 1024 * int(answer)


def write_report(results, folder, title, score_name):
    """Write `README.md` with a table of all stages, and `results.png`."""
    lines = []
    for stage in results:
        times = " | ".join(
            f"{1000 * statistics.median(stage['seconds'][rows]):.2f} "
            f"({stage['relative_time'][rows]:.2f})"
            for rows in ("1", "32")
        )
        memory = stage["peak_memory"]
        memory = "–" if memory is None else f"{memory / 2**20:,.0f}"
        lines.append(
            f"| {stage['name']} | {stage['score']:.1f} | {stage['weights']:,} | "
            f"{stage['bytes'] / 2**20:.1f} | {times} | {memory} |\n"
        )
    text = f"""# {title}

| | {score_name} | weights | MiB | 1 text, ms | 32 texts, ms | peak memory, MiB |
{"|---" * 7}|
{"".join(lines)}
All in one run. Times: medians, in parentheses relative to the first line, measured in turn. \
Memory: of a process of its own that loads the model and runs 32 texts.

![Score against time]({PLOT})
"""
    _draw(results, folder / PLOT, score_name)
    with replacing(folder / "README.md") as beside:
        beside.write_text(text, "utf-8")


def _import_figure():
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage('the plot needs Matplotlib: pip install -e ".[train]"') from error
    return Figure


def _draw(results, path, score_name):
    """Plot score against time for one text, with discs whose area is the size of the files."""
    figure = _import_figure()(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    times = [stage["relative_time"]["1"] for stage in results]
    scores = [stage["score"] for stage in results]
    largest = max(stage["bytes"] for stage in results)
    axes.plot(times, scores, color="0.7", zorder=1)
    axes.scatter(times, scores, [900 * stage["bytes"] / largest for stage in results], alpha=0.6)
    for stage, x, y in zip(results, times, scores, strict=True):
        text = f"{stage['name']}\n{stage['bytes'] / 2**20:.0f} MiB"
        axes.annotate(text, (x, y), (0, 18), textcoords="offset points", fontsize=8, ha="center")
    axes.margins(0.15, 0.25)
    axes.set_xlabel("time for one text, relative to the original")
    axes.set_ylabel(score_name)
    with replacing(path) as beside:
        figure.savefig(beside)
