"""What several commands share: their arguments, what these stand for, and importing TensorFlow."""

import gc
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from tf_transformer import data
from tf_transformer.errors import ArgumentError, MissingPackage, check

# The options that only `sample_decode` has.
_SAMPLING = {
    "seed": (int, "of the random numbers (default: 0)"),
    "temperature": (float, "below 1 favors likely tokens (default: 1.0)"),
    "top_k": (int, "only the K most likely tokens (default: all)"),
    "top_p": (float, "only the most likely tokens with this total probability (default: 1.0)"),
}


def add_command(commands, name, run):
    """Add a command that calls `run`, whose docstring is the help, and return its parser."""
    text = run.__doc__ or ""  # python -OO drops it
    parser = commands.add_parser(name, help=" ".join(text.split()))
    parser.set_defaults(run=run)
    return parser


def option(name):
    """Return the option of an argument: `--beam-size` for `beam_size`."""
    return f"--{name.replace('_', '-')}"


def given(options, names):
    """Return those of the options that were given, as a dict."""
    values = {name: getattr(options, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def check_empty(folder):
    """Check that `--output` is a folder in which there is nothing yet."""
    if Path(folder).exists() and any(Path(folder).iterdir()):
        raise ArgumentError("--output", "a new folder", f"{folder}, which is not empty")


def add_pair_arguments(parser, default, own):
    """Add `--corpus`, `--source-file` with `--target-file`, and `--tsv`."""
    add = parser.add_argument
    add("--corpus", help=f"en-zh, zh-en, en-fr or fr-en (default: {default})")
    lines = f"{own}, one sentence per line, UTF-8, gzipped or not"
    add("--source-file", nargs="+", metavar="FILE", help=lines)
    add("--target-file", nargs="+", metavar="FILE", help="their translations, line by line")
    add("--tsv", nargs="+", metavar="FILE", help="or files with source, tab, target")


def pair_source(options):
    """Return the `PairSource` of the options, with absolute paths, or None if there is none."""
    names = ("corpus", "source_file", "target_file", "tsv", "prepared")
    values = {name: value for name, value in given(options, names).items() if value}
    return data.PairSource(**values).with_paths(absolute) if values else None


def absolute(path):
    """Return a path, or None, that is valid in any folder."""
    return None if path is None else str(Path(path).resolve())


def add_model_argument(parser):
    """Add `--model`, an exported translator."""
    text = "an exported model (default: the English-Chinese one)"
    parser.add_argument("--model", metavar="FOLDER", help=text)


def model_path(folder):
    """Return the folder of an exported model, possibly in a run, or of the included one."""
    from tf_transformer.export.translation.folder import shipped_model

    path = Path(folder) if folder else shipped_model("en-zh")
    inside = path / "saved_model"  # the folder of a run or of `finetune` is also accepted
    return inside if inside.is_dir() and not (path / "saved_model.pb").is_file() else path


def is_published(folder):
    """Whether a folder has a published decoder or translator in Hugging Face's layout."""
    if not folder or not (Path(folder) / "config.json").is_file():
        return False  # without importing TensorFlow
    from tf_transformer.models.hugging_face.folders import FAMILIES, published_type

    return published_type(folder) in FAMILIES


LANGUAGES = ("source_language", "target_language")  # of a published translator


def add_language_arguments(command):
    """Add the options `LANGUAGES`."""
    for name in LANGUAGES:
        text = f"the {name.replace('_', ' ')} of a published translator that needs it: eng_Latn"
        command.add_argument(option(name), metavar="CODE", help=text)


def languages_of(options, has_languages):
    """The languages that are given; an error if the model cannot have any."""
    found = given(options, LANGUAGES)
    if found and not has_languages:
        raise ArgumentError(", ".join(map(option, found)), "a published translator", "another")
    return found


def lite_model(folder, kind):
    """Load a model that `litert` wrote, without TensorFlow; None for any other folder."""
    if folder is None or not (Path(folder) / "litert.json").is_file():
        return None
    from tf_transformer.litert import load, read_description

    found = read_description(folder)["kind"]
    check(found == kind, "--model", f"a {kind}", f"a {found} for LiteRT: {folder}")
    return load(folder)


def add_sampling_arguments(parser, exclusive):
    """Add `--sample` and the options that need it."""
    text = "sample from the model's distribution"
    exclusive.add_argument("--sample", action="store_true", help=text)
    for name, (kind, meaning) in _SAMPLING.items():
        parser.add_argument(option(name), type=kind, help=f"with --sample: {meaning}")


def sampling_options(options):
    """Return the sampling options that were given, or None without `--sample`."""
    settings = given(options, _SAMPLING)
    if settings and not options.sample:
        raise ArgumentError(", ".join(map(option, settings)), "--sample as well", "none")
    return settings if options.sample else None


def add_device_arguments(parser):
    """Add `--distribute` and `--deterministic`."""
    text = "what trains together: all GPUs of this machine (mirrored), the processes that the "
    text += "environment variable TF_CONFIG names (workers), a TPU (default: auto, workers or "
    text += "mirrored where there are several)"
    parser.add_argument("--distribute", metavar="auto|none|mirrored|workers|tpu", help=text)
    text = "only operations that give the same result every time: a run that was interrupted ends "
    text += "with the weights of one that was not, bit by bit (slower)"
    parser.add_argument("--deterministic", action="store_true", help=text)


def require(extra, *packages):
    """Raise an ImportError with the command that installs an extra if a package is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackage(f'{package} is not installed: pip install -e ".[{extra}]"')


def import_tensorflow(optimize_graphs=True, share_operations=True, start=None):
    """Import TensorFlow without the lines that it prints on import and first use."""
    if not share_operations:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Batches allocate and free hundreds of megabytes: TensorFlow's allocator keeps the memory,
    # while malloc returns it and causes new page faults (benchmarks/training/NOTES.md).
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    # oneDNN's matrix products were faster on every x86 processor measured, but TensorFlow enables
    # them by default only on some.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        import tensorflow as tf

        options = {"disable_meta_optimizer": not optimize_graphs}
        tf.config.optimizer.set_experimental_options(options)
        tf.config.list_physical_devices()
        started = start() if start else None
        tf.zeros(())  # the first tensor prints more lines
        if tf.__version__ < "2.21":  # so does the first XLA program, whatever the log level
            tf.function(lambda: tf.zeros(()), jit_compile=True)()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
    # Tracing allocates millions of objects, and every collection would also visit the objects of
    # the imports: a quarter of the time to the first step.
    gc.freeze()
    return started


def start_training(options):
    """Import TensorFlow and connect the devices or processes that train together."""

    def start():
        import tensorflow as tf

        if options.deterministic:
            tf.config.experimental.enable_op_determinism()
        from tf_transformer.distribution import start_distribution

        return start_distribution(options.distribute or "auto")

    return import_tensorflow(start=start)


def add_settings(parser, settings):
    """Add options of `FineTuning`: `settings` maps each to its default and its meaning."""
    for name, (default, meaning) in settings.items():
        text = f"{meaning} (default: {default})"
        parser.add_argument(option(name), type=type(default), default=default, help=text)


def write_result(folder, result):
    """Write `result.json` beside the models in a folder, and print it with their paths."""
    text = json.dumps(result, indent=2)
    (folder / "result.json").write_text(text + "\n", encoding="utf-8")
    print(f"{text}\nModel: {folder / 'model'}, SavedModel: {folder / 'saved_model'}")


def show_progress(text, done):
    """Rewrite the last line of a terminal, and end the line when all is done."""
    if sys.stderr.isatty():
        print(f"\r{text}", end="\n" if done else "", file=sys.stderr, flush=True)
