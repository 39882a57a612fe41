"""The command `pretrain`: a small BERT from raw text."""

import sys
from pathlib import Path

from tf_transformer.cli.arguments import (
    add_run_arguments,
    new_folder,
    new_preset,
    text_source,
    train_run,
)
from tf_transformer.errors import ArgumentError


def add_commands(commands):
    """Add the parser of this file."""
    pretrain = commands.add_parser(
        "pretrain", help="pretrain a small BERT on raw text: masked words and next sentences"
    )
    pretrain.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="one sentence per line, a blank line between documents (default: the included English "
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
    pretrain.add_argument(
        "--whole-words", action="store_true", default=None, help="mask whole words"
    )
    add_run_arguments(pretrain, "small or tiny (default: small)", "runs/bert-PRESET")
    pretrain.set_defaults(run=_pretrain)


def _pretrain(options):
    packages = {"tokenizers": "train", "safetensors": "bert"}
    run, _ = train_run(options, "PretrainingRun", _new_run, packages)
    if run is not None:
        _draw(run.folder)
        print(f"Model: {run.model_path}")


def _new_run(options):
    from tf_transformer.distribution import current_workers
    from tf_transformer.training import PRETRAINING_PRESETS, PretrainingRun

    if options.start and options.vocab_size:
        raise ArgumentError("--vocab-size", "none with --start, whose vocabulary is used")
    learning_rate = options.learning_rate
    if learning_rate is None and options.start:
        learning_rate = 5e-4
    preset = new_preset(options, PRETRAINING_PRESETS, peak_learning_rate=learning_rate)
    vocabulary, start = (
        None if path is None else str(Path(path).resolve())
        for path in (options.vocabulary, options.start)
    )
    folder = new_folder(options, f"runs/bert-{preset.name}", "pretrain")
    if current_workers().is_chief and folder.is_dir() and any(folder.iterdir()):
        raise ArgumentError("--output", "a new folder", f"{folder}, which is not empty")
    return PretrainingRun(folder, text_source(options), preset, vocabulary, start)


def _draw(folder):
    """Draw the curves, if matplotlib is installed."""
    from tf_transformer.visualize import training_curves

    try:
        training_curves(folder / "history.csv", folder / "loss.png")
    except ImportError as error:
        print(f"tf-transformer: no plot of the loss: {error}", file=sys.stderr)
    else:
        print(f"Curves: {folder / 'loss.png'}")
