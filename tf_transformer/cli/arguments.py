"""Arguments that several commands share."""

import dataclasses
import shlex
import sys
from pathlib import Path

from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.errors import ArgumentError


def add_pair_arguments(parser, default, own):
    """Add `--corpus`, `--source-file` with `--target-file`, and `--tsv`."""
    parser.add_argument("--corpus", help=f"en-zh, zh-en, en-fr or fr-en (default: {default})")
    parser.add_argument(
        "--source-file",
        nargs="+",
        metavar="FILE",
        help=f"{own}, one sentence per line, UTF-8, gzipped or not",
    )
    parser.add_argument(
        "--target-file", nargs="+", metavar="FILE", help="their translations, line by line"
    )
    parser.add_argument(
        "--tsv", nargs="+", metavar="FILE", help="or files with source, tab, target"
    )


def pair_source(options):
    """Return the `PairSource` of the options, with absolute paths, or None if there is none."""
    from tf_transformer.data import PairSource

    names = ("corpus", "source_file", "target_file", "tsv", "prepared")
    given = {name: getattr(options, name, None) for name in names}
    given = {name: value for name, value in given.items() if value}
    return PairSource(**given).with_paths(_absolute) if given else None


def validation_source(options):
    """Return the `PairSource` of `--validation-file`, or None."""
    from tf_transformer.data import PairSource

    files = options.validation_file or ()
    if len(files) > 2:
        raise ArgumentError(
            "--validation-file", "a TSV file, or a source and a target file", f"{len(files)} files"
        )
    if not files:
        return None
    names = ("tsv",) if len(files) == 1 else ("source_file", "target_file")
    return PairSource(**dict(zip(names, files, strict=True))).with_paths(_absolute)


def text_source(options):
    """Return the `TextSource` of the options, with absolute paths."""
    from tf_transformer.data import TextSource

    if options.text:
        return TextSource(files=tuple(map(_absolute, options.text)))
    return TextSource(corpus=getattr(options, "corpus", None) or "en-zh")


def _absolute(file):
    return str(Path(file).resolve())


def add_model_argument(parser):
    """Add `--model`, an exported translator."""
    parser.add_argument(
        "--model", metavar="FOLDER", help="an exported model (default: the English-Chinese one)"
    )


def model_path(folder):
    """Return the folder of an exported model, possibly in a run, or of the included one."""
    from tf_transformer.export.translation.folder import shipped_model

    path = Path(folder) if folder else shipped_model("en-zh")
    inside = path / "saved_model"  # a run's folder is also accepted
    return inside if (path / "run.json").is_file() and inside.is_dir() else path


# The options that only `sample_decode` has.
_SAMPLING = {
    "seed": (int, "of the random numbers (default: 0)"),
    "temperature": (float, "below 1 favors likely tokens (default: 1.0)"),
    "top_k": (int, "only the K most likely tokens (default: all)"),
    "top_p": (float, "only the most likely tokens with this total probability (default: 1.0)"),
}


def add_sampling_arguments(parser, exclusive):
    """Add `--sample` and the options that need it."""
    exclusive.add_argument(
        "--sample", action="store_true", help="sample from the model's distribution"
    )
    for name, (kind, meaning) in _SAMPLING.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, help=f"with --sample: {meaning}")


def sampling_options(options):
    """Return the sampling options that were given, or None without `--sample`."""
    given = {name: getattr(options, name) for name in _SAMPLING}
    given = {name: value for name, value in given.items() if value is not None}
    if options.sample:
        return given
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ArgumentError(names, "--sample as well", "none")
    return None


def add_device_arguments(parser):
    """Add `--distribute` and `--deterministic`."""
    parser.add_argument(
        "--distribute",
        metavar="auto|none|mirrored|workers|tpu",
        help="what trains together: all GPUs of this machine (mirrored), the processes that the "
        "environment variable TF_CONFIG names (workers), a TPU (default: auto, workers or mirrored "
        "where there are several)",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="only operations that give the same result every time: a run that was interrupted "
        "ends with the weights of one that was not, bit by bit (slower)",
    )


def start_training(options):
    """Import TensorFlow and connect the devices or processes that train together."""

    def start():
        import tensorflow as tf

        if options.deterministic:
            tf.config.experimental.enable_op_determinism()
        from tf_transformer.distribution import start_distribution

        return start_distribution(options.distribute or "auto")

    return import_tensorflow(start=start)


def add_run_arguments(parser, presets, folder, architectures=None):
    """Add the options of a training run: preset, changes of the preset, folder."""
    parser.add_argument("--preset", help=presets)
    for name in ("vocab-size", "epochs", "seed"):
        parser.add_argument(f"--{name}", type=int, help="instead of the preset's")
    parser.add_argument(
        "--accumulate",
        type=int,
        metavar="N",
        help="compute the gradient of each batch in N parts: less memory, the same result",
    )
    parser.add_argument(
        "--precision",
        help="float32 (default); mixed_bfloat16, for accelerators and processors with AMX; "
        "mixed_float16, for GPUs without bfloat16",
    )
    if architectures:
        parser.add_argument(
            "--architecture",
            metavar="FILE|NAME",
            help="parts of the model: a JSON file of Architecture.to_json(), or a published model "
            f"with its sizes: {architectures}",
        )
    parser.add_argument("--output", metavar="FOLDER", help=f"default: {folder}")
    parser.add_argument(
        "--resume", metavar="FOLDER", help="resume a run that was stopped, with its settings"
    )
    add_device_arguments(parser)


def new_preset(options, presets, model_class=None, **changes):
    """Return the preset of the options, with the changes that they name."""
    from tf_transformer.training import get_preset

    preset = get_preset(options.preset or "small", presets)
    names = {field.name for field in dataclasses.fields(preset)} - {"architecture"}
    changes |= {name: value for name, value in vars(options).items() if name in names}
    if getattr(options, "architecture", None):
        changes |= _architecture_changes(options.architecture, model_class)
    return preset.with_changes(changes)


def _architecture_changes(given, model_class):
    """Return the fields of the preset that `--architecture` changes."""
    from tf_transformer.layers import Architecture
    from tf_transformer.models import architectures

    path = Path(given)
    if path.is_file() or path.suffix == ".json":
        return {"architecture": Architecture.from_json(path.read_bytes()).to_dict()}
    published = architectures.get(given)
    if published.model_class is not model_class:
        raise ArgumentError(
            "--architecture",
            f"a {model_class.__name__}",
            f"{given!r}, a {published.model_class.__name__}",
        )
    return {**published.sizes, "architecture": published.to_dict()}


def new_folder(options, default, command):
    """Return the folder of a new run; the chief checks that it does not contain another run."""
    from tf_transformer.distribution import current_workers

    folder = Path(options.output or default)
    if (folder / "run.json").exists() and current_workers().is_chief:
        raise ArgumentError(
            "--output",
            "a new folder",
            f"{folder}, which contains a training run",
            f"Resume it: tf-transformer {command} --resume {folder}; or choose another folder.",
        )
    return folder


# Allowed with --resume, since they are not settings of a run.
_OF_A_PROCESS = ("run", "resume", "distribute", "deterministic", "tensorboard")


def train_run(options, kind, new_run, packages, callbacks=()):
    """Train a new run, or resume one, and return the run and its model (the chief) or two None.

    `kind` is the name of a class of `training`, `packages` maps required packages to extras, and
    `callbacks` are functions from the run to a callback.
    """
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(options).items()
        if value is not None and value is not False and name not in _OF_A_PROCESS
    ]
    if options.resume and given:
        raise ArgumentError(
            ", ".join(given),
            "no setting with --resume, whose run has its own",
            remedy="Leave it out, or start a new run.",
        )
    for package, extra in packages.items():
        require(package, extra)
    scope = start_training(options)
    from tf_transformer import training
    from tf_transformer.distribution import current_workers, together

    with together():
        run = getattr(training, kind).open(options.resume) if options.resume else new_run(options)
    try:
        with scope:
            model = run.train([make(run) for make in callbacks])
    except (KeyboardInterrupt, OSError) as error:
        if (run.folder / "checkpoints").exists() and not isinstance(error, FileNotFoundError):
            print(
                f"\nA checkpoint is saved. Resume with: tf-transformer {run.command} --resume "
                f"{shlex.quote(str(run.folder))}",
                file=sys.stderr,
            )
        raise
    return (run, model) if current_workers().is_chief else (None, None)
