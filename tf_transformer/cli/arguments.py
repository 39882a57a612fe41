"""Arguments that several commands share."""

import contextlib
import shlex
import sys
from pathlib import Path

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


def _absolute(file):
    return str(Path(file).resolve())


def add_model_argument(parser):
    """Add `--model`, an exported translator."""
    parser.add_argument(
        "--model", metavar="FOLDER", help="an exported model (default: the English-Chinese one)"
    )


def model_path(folder):
    """Return the folder of an exported model, of the one in a run, or for None the included one."""
    from tf_transformer.export.translation.translator import shipped_model

    path = Path(folder) if folder else shipped_model("en-zh")
    inside = path / "saved_model"  # the folder of a run is accepted too
    return inside if (path / "run.json").is_file() and inside.is_dir() else path


def add_architecture_argument(parser, names):
    """Add the option."""
    parser.add_argument(
        "--architecture",
        metavar="FILE|NAME",
        help="parts of the model: a JSON file of Architecture.to_json(), or a published model with "
        f"its sizes: {names}",
    )


def architecture_changes(given, model_class):
    """The fields of the preset that the option changes."""
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


# The options of `sample_decode` that only it has.
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


OPTIONS = "distribute", "deterministic"  # allowed with --resume: they are no settings of the run


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


def add_precision_argument(parser):
    """Add `--precision`, a setting of the run."""
    parser.add_argument(
        "--precision",
        help="float32 (default); mixed_bfloat16, for accelerators and processors with AMX; "
        "mixed_float16, for GPUs without bfloat16",
    )


def add_accumulate_argument(parser):
    """Add `--accumulate`, a setting of the run."""
    parser.add_argument(
        "--accumulate",
        type=int,
        metavar="N",
        help="compute the gradient of each batch in N parts: less memory, the same result",
    )


def start_training(options):
    """Import TensorFlow and connect what trains together."""
    from tf_transformer.cli.tensorflow_start import import_tensorflow

    def start():
        import tensorflow as tf

        if options.deterministic:
            tf.config.experimental.enable_op_determinism()
        from tf_transformer.distribution import start_distribution

        return start_distribution(options.distribute or "auto")

    return import_tensorflow(start=start)


def add_resume_argument(parser):
    """Add `--resume`, the folder of a run to resume."""
    parser.add_argument(
        "--resume", metavar="FOLDER", help="resume a run that was stopped, with its settings"
    )


def refuse_beside_resume(options, allowed=()):
    """Check that no setting is given with `--resume`: a run keeps its own."""
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(options).items()
        if value is not None and value is not False and name not in ("run", "resume", *allowed)
    ]
    if given:
        raise ArgumentError(
            ", ".join(given),
            "no setting with --resume, whose run has its own",
            remedy="Leave it out, or start a new run.",
        )


def check_new_run(folder, settings, command, kind, otherwise):
    """Check that a folder contains no run that a new one would overwrite; the chief's task."""
    from tf_transformer.distribution import current_workers

    if (folder / settings).exists() and current_workers().is_chief:
        raise ArgumentError(
            "--output",
            "a new folder",
            f"{folder}, which contains a {kind} run",
            f"Resume it: tf-transformer {command} --resume {folder}; or {otherwise}.",
        )


@contextlib.contextmanager
def resumable(folder, command):
    """Say how to resume the run in a folder if it is stopped."""
    try:
        yield
    except (KeyboardInterrupt, OSError):
        if (folder / "checkpoints").exists():
            print(
                f"\nA checkpoint is saved. Resume with: tf-transformer {command} --resume "
                f"{shlex.quote(str(folder))}",
                file=sys.stderr,
            )
        raise
