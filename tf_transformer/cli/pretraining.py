"""The command `pretrain`: a small BERT from raw text."""

import sys
from pathlib import Path

from tf_transformer.cli.arguments import OPTIONS as DEVICE_OPTIONS
from tf_transformer.cli.arguments import (
    add_accumulate_argument,
    add_device_arguments,
    add_resume_argument,
    check_new_run,
    refuse_beside_resume,
    resumable,
    start_training,
)
from tf_transformer.cli.tensorflow_start import require
from tf_transformer.errors import ArgumentError

# The settings of a preset that have an option.
_CHANGES = ("vocab_size", "epochs", "lengths", "seed", "whole_words", "accumulate")


def add_commands(commands):
    """Add the parser of this file."""
    pretrain = commands.add_parser(
        "pretrain", help="pretrain a small BERT on raw text: masked words and next sentences"
    )
    pretrain.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="one sentence per line, a blank line between documents (default: the embedded English "
        "sentences, each a document)",
    )
    pretrain.add_argument(
        "--vocabulary", metavar="FILE", help="a vocab.txt instead of a new vocabulary"
    )
    pretrain.add_argument(
        "--start",
        metavar="FOLDER",
        help="a checkpoint to adapt to the texts; its sizes and vocabulary are used",
    )
    pretrain.add_argument("--preset", help="small or tiny (default: small)")
    pretrain.add_argument("--vocab-size", type=int, help="instead of the preset's")
    pretrain.add_argument("--epochs", type=int, help="instead of the preset's")
    pretrain.add_argument(
        "--learning-rate",
        type=float,
        help="peak learning rate instead of the preset's (with --start: 5e-4)",
    )
    pretrain.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        metavar="N",
        help="instead of the preset's: texts are padded to one of these lengths, longer ones split",
    )
    pretrain.add_argument("--seed", type=int, help="instead of the preset's")
    add_accumulate_argument(pretrain)
    pretrain.add_argument(
        "--whole-words", action="store_true", default=None, help="mask whole words"
    )
    pretrain.add_argument("--output", metavar="FOLDER", help="default: runs/bert-PRESET")
    add_resume_argument(pretrain)
    add_device_arguments(pretrain)
    pretrain.set_defaults(run=_pretrain)


def _pretrain(options):
    if options.resume:
        refuse_beside_resume(options, allowed=DEVICE_OPTIONS)
    for package, extra in (("tokenizers", "train"), ("safetensors", "bert")):
        require(package, extra)
    scope = start_training(options)
    from tf_transformer.distribution import current_workers, together
    from tf_transformer.training import PretrainingRun

    with together():
        run = PretrainingRun.open(options.resume) if options.resume else _new_run(options)
    with resumable(run.folder, "pretrain"), scope:
        run.train()
    if not current_workers().is_chief:
        return
    _draw(run.folder)
    print(f"Model: {run.model_path}")


def _new_run(options):
    from tf_transformer.data import TextSource
    from tf_transformer.distribution import current_workers
    from tf_transformer.training import PRETRAINING_PRESETS, PretrainingRun, get_preset

    if options.start and options.vocab_size:
        raise ArgumentError("--vocab-size", "none with --start, whose vocabulary is used")
    learning_rate = options.learning_rate
    if learning_rate is None and options.start:
        learning_rate = 5e-4
    preset = get_preset(options.preset or "small", PRETRAINING_PRESETS).with_changes(
        {name: getattr(options, name) for name in _CHANGES} | {"peak_learning_rate": learning_rate}
    )
    # Absolute paths, so that the run can be resumed from another folder.
    files = tuple(str(Path(file).resolve()) for file in options.text or ())
    vocabulary, start = (
        None if path is None else str(Path(path).resolve())
        for path in (options.vocabulary, options.start)
    )
    source = TextSource(files=files) if files else TextSource(corpus="en-zh")
    folder = Path(options.output or f"runs/bert-{preset.name}")
    check_new_run(folder, "pretraining.json", "pretrain", "pretraining", "choose another folder")
    if current_workers().is_chief and folder.is_dir() and any(folder.iterdir()):
        raise ArgumentError("--output", "a new folder", f"{folder}, which is not empty")
    return PretrainingRun(folder, source, preset, vocabulary, start)


def _draw(folder):
    """Draw the curves, if matplotlib is installed."""
    from tf_transformer.visualize import training_curves

    try:
        training_curves(folder / "history.csv", folder / "loss.png")
    except ImportError as error:
        print(f"tf-transformer: no plot of the loss: {error}", file=sys.stderr)
    else:
        print(f"Curves: {folder / 'loss.png'}")
