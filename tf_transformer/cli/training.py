"""The command `train`: a translator from sentence pairs to a SavedModel."""

from pathlib import Path

from tf_transformer.cli.architecture_argument import (
    add_architecture_argument,
    architecture_changes,
)
from tf_transformer.cli.distributing import OPTIONS as DEVICE_OPTIONS
from tf_transformer.cli.distributing import (
    add_accumulate_argument,
    add_device_arguments,
    add_precision_argument,
    start_training,
)
from tf_transformer.cli.exporting import (
    PRESET_OPTIONS,
    export_runs,
    sentences_to_show,
    translated,
)
from tf_transformer.cli.pair_arguments import add_pair_arguments, pair_source, validation_source
from tf_transformer.cli.resuming import (
    add_resume_argument,
    check_new_run,
    refuse_beside_resume,
    resumable,
)
from tf_transformer.cli.tensorflow_start import require
from tf_transformer.errors import ArgumentError


def add_train(commands):
    """Add the parser of this file."""
    train = commands.add_parser(
        "train", help="train a translator, score it, export it, translate three sentences"
    )
    add_pair_arguments(train, "en-zh", "your own sentences")
    train.add_argument(
        "--prepared", metavar="FOLDER", help="or what tf-transformer prepare wrote, of any size"
    )
    train.add_argument(
        "--validation-file",
        nargs="+",
        metavar="FILE",
        help="your own validation set: a TSV file, or a source and a target file (default: 2 %% of "
        "the data)",
    )
    train.add_argument(
        "--preset",
        help="small, minutes on two cores (default); tiny, seconds, learns next to nothing; base, "
        "the paper's, for large corpora and an accelerator",
    )
    train.add_argument(
        "--subword", help="bpe, wordpiece or unigram: how words are split (default: bpe)"
    )
    train.add_argument("--vocab-size", type=int, help="instead of the preset's")
    train.add_argument("--epochs", type=int, help="instead of the preset's")
    train.add_argument("--seed", type=int, help="instead of the preset's")
    add_accumulate_argument(train)
    add_precision_argument(train)
    add_architecture_argument(
        train, "transformer-base, transformer-big, transformer-tiny, macaron-base"
    )
    train.add_argument("--output", metavar="FOLDER", help="default: runs/DATA-PRESET")
    add_resume_argument(train)
    add_device_arguments(train)
    train.add_argument("--tensorboard", action="store_true", help="write logs for TensorBoard")
    train.set_defaults(run=_train)


def _train(options):
    if options.resume:
        refuse_beside_resume(options, allowed=("tensorboard", *DEVICE_OPTIONS))
    for package in ("tokenizers", "sacrebleu"):
        require(package, "train")
    if options.tensorboard:
        require("tensorboard", "tensorboard")
    scope = start_training(options)
    import keras

    from tf_transformer.distribution import current_workers, together
    from tf_transformer.training import TrainingRun

    with together():
        run = TrainingRun.open(options.resume) if options.resume else _new_run(options)
    callbacks = []
    if options.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(run.folder / "tensorboard"))
    with resumable(run.folder, "train"), scope:
        run.train(callbacks)
    if not current_workers().is_chief:
        return
    translator = export_runs([run], run.folder / "saved_model")
    print()
    for sentence in sentences_to_show(run):
        print(f"{sentence}\t{translated(translator, sentence)}")
    print(f"\nModel: {run.folder / 'saved_model'}")


def _new_run(options):
    from tf_transformer.data import PairSource
    from tf_transformer.models import Transformer
    from tf_transformer.training import TrainingRun, get_preset

    if options.prepared and (options.subword or options.vocab_size):
        raise ArgumentError("--subword, --vocab-size", "none with --prepared, which has its own")
    source = pair_source(options) or PairSource(corpus="en-zh")
    changes = {name: getattr(options, name) for name in PRESET_OPTIONS}
    if options.architecture:
        changes |= architecture_changes(options.architecture, Transformer)
    preset = get_preset(options.preset or "small").with_changes(changes)
    folder = Path(options.output or f"runs/{source.name}-{preset.name}")
    otherwise = "delete it, or choose another folder"
    check_new_run(folder, "run.json", "train", "training", otherwise)
    return TrainingRun(folder, source, preset, validation_source(options))
