"""Compressing a model in stages, with measurements of each."""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tf_transformer.compression.recipes import Quantize
from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError, ExistingFileError, MissingPackage
from tf_transformer.export.chain.tasks import (
    LITE,
    ClassifierTask,
    TranslatorTask,
    exported,
    in_batches,
    served,
)
from tf_transformer.export.write_litert import litert_functions
from tf_transformer.litert import import_interpreter

RECIPE, STAGE, RESULTS, PLOT = "recipe.json", "stage.json", "results.json", "results.png"
ROWS = (1, 32)  # texts of a call that is timed


def compress(recipe, folder, **fit_options):
    """Compress a model step by step, and measure the quality, size and speed after each step.

    Every step writes a folder, `0-original`, `1-distil` and so on, with the export in `saved_model`
    or `litert`, and for classifiers the model in `model`. A folder appears when its step is
    complete; the same call resumes at the first missing one. At the end, all are measured in one
    run, which writes `results.json`, `README.md` with a table, and `results.png`.

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
        >>> from tf_transformer.compression.recipes import Quantize, Recipe
        >>> compress(Recipe("nowhere", (Quantize(),)), "smaller")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: model: expected the output of finetune or a training
        run, got nowhere.
    """
    folder = Path(folder)
    import_figure()
    _check_folder(folder, recipe)
    task = _task(recipe, fit_options)
    _rehearse(recipe, task.model)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / RECIPE, recipe.to_dict())
    steps = (None, *recipe.steps)
    names = ["original", *(step.name for step in recipe.steps)]
    stages = [folder / f"{n}-{name}" for n, name in enumerate(names)]
    finished = [(stage / STAGE).is_file() for stage in stages]
    first = [*finished, False].index(False)
    for stage in (*stages[:first], *stages[first + 1 :]):  # left when a process was killed
        shutil.rmtree(_unfinished(stage), ignore_errors=True)
    if first < len(stages):
        (folder / RESULTS).unlink(missing_ok=True)
        for stage in stages[first + 1 :]:  # made from another model than the one to come
            shutil.rmtree(stage, ignore_errors=True)
        whole = [n for n in range(first) if not isinstance(steps[n], Quantize)]
        model = task.load(stages[whole[-1]]) if whole else task.model
        for stage, step in zip(stages[first:], steps[first:], strict=True):
            model = _make_stage(stage, step, model, task)
    if not (folder / RESULTS).is_file():
        _write_json(folder / RESULTS, _measured(task, stages))
    results = json.loads((folder / RESULTS).read_text("utf-8"))
    write_report(results, folder, f"{Path(recipe.model).name}, smaller", task.score_name)
    return results


def _check_folder(folder, recipe):
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    known = folder / RECIPE
    try:
        content = json.loads(known.read_text("utf-8"))
    except (OSError, ValueError):  # missing, or not ours
        content = None
    if content != json.loads(json.dumps(recipe.to_dict())):  # a file has lists for tuples
        raise ExistingFileError(
            "folder",
            "a new folder, or that of the same recipe, which would be resumed",
            "another recipe" if isinstance(content, dict) else "other content",
            place=folder,
        )


def _task(recipe, fit_options):
    if not (Path(recipe.model) / "run.json").is_file():
        return ClassifierTask(recipe.model, recipe.data, **fit_options)
    if recipe.data:
        raise ArgumentError("data", "none, since the run has its own", "some")
    return TranslatorTask(recipe.model)


def _rehearse(recipe, model):
    """Apply all cuts without training, to find errors beforehand."""
    for n, step in enumerate(recipe.steps):
        try:
            model = step.rehearse(model)
            if isinstance(step, Quantize) and step.runtime == "litert":
                import_interpreter()
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
        _write_json(beside / STAGE, {"score": score, "weights": model.count_params()})
    shutil.rmtree(_unfinished(stage), ignore_errors=True)
    print(f"{stage.name}: {task.score_name} {score:.2f}", flush=True)
    return model


def _unfinished(stage):
    return stage.with_name(f"{stage.name}.unfinished")


def _measured(task, stages):
    print("measuring", flush=True)
    calls = {stage.name: served(stage, task.method) for stage in stages}
    times = {rows: seconds_of(calls, task.texts, rows) for rows in ROWS}
    results = []
    for stage in stages:
        own = {rows: times[rows][stage.name] for rows in ROWS}
        first = {rows: times[rows][stages[0].name] for rows in ROWS}
        files = [file for file in exported(stage).rglob("*") if file.is_file()]
        results.append(
            {
                "name": stage.name,
                **json.loads((stage / STAGE).read_text("utf-8")),
                "bytes": sum(file.stat().st_size for file in files),
                "seconds": {rows: sorted(own[rows]) for rows in ROWS},
                "relative_time": {rows: relative(own[rows], first[rows]) for rows in ROWS},
                "peak_memory": peak_memory(stage, task.method, task.texts[: ROWS[-1]]),
            }
        )
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
    given = [str(exported(stage).resolve()), (stage / LITE).is_dir(), method, texts]
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY],
        input=json.dumps(given),
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


def write_report(results, folder, title, score_name):
    """Write `README.md` with a table of all stages, and `results.png`."""
    lines = [
        f"# {title}",
        "",
        f"| | {score_name} | weights | MiB | 1 text, ms | 32 texts, ms | peak memory, MiB |",
        "|---" * 7 + "|",
    ]
    for stage in results:
        times = (
            f"{1000 * statistics.median(stage['seconds'][rows]):.2f} "
            f"({stage['relative_time'][rows]:.2f})"
            for rows in ("1", "32")
        )
        memory = stage["peak_memory"]
        memory = "–" if memory is None else f"{memory / 2**20:,.0f}"
        lines.append(
            f"| {stage['name']} | {stage['score']:.1f} | {stage['weights']:,} | "
            f"{stage['bytes'] / 2**20:.1f} | {' | '.join(times)} | {memory} |"
        )
    lines += [
        "",
        "All in one run. Times: medians, in parentheses relative to the first line, measured in "
        "turn. Memory: of a process of its own that loads the model and runs 32 texts.",
        "",
        f"![Score against time]({PLOT})",
        "",
    ]
    _draw(results, folder / PLOT, score_name)
    with replacing(folder / "README.md") as beside:
        beside.write_text("\n".join(lines), "utf-8")


def import_figure():
    """Import what draws the plot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage('the plot needs Matplotlib: pip install -e ".[train]"') from error
    return Figure


def _draw(results, path, score_name):
    """Plot score against time for one text, with discs whose area is the size of the files."""
    figure = import_figure()(figsize=(6, 4), layout="constrained")
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


def _write_json(path, content):
    with replacing(path) as beside:
        beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
