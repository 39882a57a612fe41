"""The commands that train from scratch: train, prepare, train-lm and pretrain."""

import dataclasses
import shlex
import sys
import time
from pathlib import Path

from tf_transformer import data
from tf_transformer.cli.arguments import (
    absolute,
    add_command,
    add_device_arguments,
    add_pair_arguments,
    check_empty,
    given,
    option,
    pair_source,
    require,
    show_progress,
    start_training,
)
from tf_transformer.cli.exporting import export_runs, sentences_to_show
from tf_transformer.errors import ArgumentError, check

_DOCUMENTS = (
    "a blank line between documents (default: the included English sentences, each a document)"
)
# Allowed with --resume, since they are not settings of a run.
_OF_A_PROCESS = ("run", "resume", "distribute", "deterministic", "tensorboard")


def add_run_arguments(parser, presets, folder, architectures=None):
    """Add the options of a training run: preset, changes of the preset, folder."""
    add = parser.add_argument
    add("--preset", help=presets)
    for name in ("vocab-size", "epochs", "seed"):
        add(f"--{name}", type=int, help="instead of the preset's")
    parts = "compute the gradient of each batch in N parts: less memory, the same result"
    add("--accumulate", type=int, metavar="N", help=parts)
    text = "float32 (default); mixed_bfloat16, for accelerators and processors with AMX; "
    text += "mixed_float16, for GPUs without bfloat16"
    add("--precision", help=text)
    if architectures:
        text = "parts of the model: a JSON file of Architecture.to_json(), or a published model "
        text += f"with its sizes: {architectures}"
        add("--architecture", metavar="FILE|NAME", help=text)
    add("--output", metavar="FOLDER", help=f"default: {folder}")
    add("--resume", metavar="FOLDER", help="resume a run that was stopped, with its settings")
    add_device_arguments(parser)


def train_run(options, kind, new_run):
    """Train a new run, or resume one; return it and its model on the chief, else two None."""
    settings = [
        option(name)
        for name, value in vars(options).items()
        if value is not None and value is not False and name not in _OF_A_PROCESS
    ]
    expected = "no setting with --resume, whose run has its own"
    remedy = "Leave it out, or start a new run."
    check(not (options.resume and settings), ", ".join(settings), expected, remedy=remedy)
    scope = start_training(options)
    import keras

    from tf_transformer import training
    from tf_transformer.distribution import current_workers, together

    with together():
        run = getattr(training, kind).open(options.resume) if options.resume else new_run(options)
    try:
        with scope:
            callbacks = []
            if getattr(options, "tensorboard", False):
                callbacks.append(keras.callbacks.TensorBoard(run.folder / "tensorboard"))
            model = run.train(callbacks)
    except (KeyboardInterrupt, OSError) as error:
        if (run.folder / "checkpoints").exists() and not isinstance(error, FileNotFoundError):
            command = f"tf-transformer {run.command} --resume {shlex.quote(str(run.folder))}"
            print(f"\nA checkpoint is saved. Resume with: {command}", file=sys.stderr)
        raise
    return (run, model) if current_workers().is_chief else (None, None)


def new_preset(options, presets, model_class=None, **changes):
    """Return the preset of the options, with the changes that they name."""
    from tf_transformer.training import get_preset

    preset = get_preset(options.preset or "small", presets)
    names = {field.name for field in dataclasses.fields(preset)} - {"architecture"}
    changes |= {name: value for name, value in vars(options).items() if name in names}
    if getattr(options, "architecture", None):
        changes |= architecture_changes(options.architecture, model_class)
    return preset.with_changes(changes)


def architecture_changes(name_or_file, model_class):
    """Return the fields of the preset that `--architecture` changes."""
    from tf_transformer.layers import Architecture
    from tf_transformer.models import architectures

    path = Path(name_or_file)
    if path.is_file() or path.suffix == ".json":
        return {"architecture": Architecture.from_json(path.read_bytes()).to_dict()}
    published = architectures.get(name_or_file)
    if published.model_class is not model_class:
        got = f"{name_or_file!r}, a {published.model_class.__name__}"
        raise ArgumentError("--architecture", f"a {model_class.__name__}", got)
    return {**published.sizes, "architecture": published.to_dict()}


def new_folder(options, default, command):
    """Return the folder of a new run; the chief checks that it does not contain another run."""
    from tf_transformer.distribution import current_workers

    folder = Path(options.output or default)
    if (folder / "run.json").exists() and current_workers().is_chief:
        got = f"{folder}, which contains a training run"
        remedy = f"Resume it: tf-transformer {command} --resume {folder}; or choose another folder."
        raise ArgumentError("--output", "a new folder", got, remedy)
    return folder


def add_train(commands):
    """Add the command `train`."""
    train = add_command(commands, "train", _train)
    add_pair_arguments(train, "en-zh", "your own sentences")
    add = train.add_argument
    prepared = "or the output of tf-transformer prepare, of any size"
    add("--prepared", metavar="FOLDER", help=prepared)
    text = "your own validation set: a TSV file, or a source and a target file (default: 2 %% of "
    text += "the data)"
    add("--validation-file", nargs="+", metavar="FILE", help=text)
    add("--subword", help="bpe, wordpiece or unigram: how words are split (default: bpe)")
    add_run_arguments(
        train,
        "small, minutes on two cores (default); tiny, seconds, learns next to nothing; base, the "
        "paper's, for large corpora and an accelerator",
        "runs/DATA-PRESET",
        "transformer-base, transformer-big, transformer-tiny, macaron-base",
    )
    add("--tensorboard", action="store_true", help="write logs for TensorBoard")


def _train(options):
    """train a translator, score it, export it, translate three sentences"""
    require("train", "tokenizers", "sacrebleu")
    if options.tensorboard:
        require("tensorboard", "tensorboard")
    run, _ = train_run(options, "TrainingRun", _new_translator)
    if run is None:
        return
    from tf_transformer.export import translate_texts

    translator = export_runs([run], run.folder / "saved_model")
    print()
    for sentence in sentences_to_show(run):
        print(sentence, *translate_texts(translator, [sentence]), sep="\t")
    print(f"\nModel: {run.folder / 'saved_model'}")


def _new_translator(options):
    from tf_transformer.models import Transformer
    from tf_transformer.training import PRESETS, TrainingRun

    if options.prepared and (options.subword or options.vocab_size):
        raise ArgumentError("--subword, --vocab-size", "none with --prepared, which has its own")
    source = pair_source(options) or data.PairSource(corpus="en-zh")
    preset = new_preset(options, PRESETS, Transformer)
    folder = new_folder(options, f"runs/{source.name}-{preset.name}", "train")
    return TrainingRun(folder, source, preset, _validation_source(options))


def _validation_source(options):
    """Return the `PairSource` of `--validation-file`, or None."""
    files = options.validation_file or ()
    expected = "a TSV file, or a source and a target file"
    check(len(files) <= 2, "--validation-file", expected, f"{len(files)} files")
    if not files:
        return None
    names = ("tsv",) if len(files) == 1 else ("source_file", "target_file")
    return data.PairSource(**dict(zip(names, files, strict=True))).with_paths(absolute)


def add_prepare(commands):
    """Add the command `prepare`."""
    prepare = add_command(commands, "prepare", _prepare)
    add_pair_arguments(prepare, "none", "sentences")
    add = prepare.add_argument
    add("--validation-file", nargs="+", metavar="FILE", help="your own validation set, as in train")
    add("--subword", default="bpe", help="bpe, wordpiece or unigram (default: bpe)")
    add("--vocab-size", type=int, default=8000, help="of both languages (default: 8000)")
    add("--workers", type=int, help="number of processes (default: one per core)")
    add("--output", required=True, metavar="FOLDER", help="the folder to write")


def _prepare(options):
    """turn sentence pairs larger than memory into shards for train --prepared"""
    require("train", "tokenizers")
    from tf_transformer.data.preparing import processors

    source = pair_source(options)
    check(source is not None, "--corpus, --source-file, --tsv", "one of them", "none")
    settings = {"workers": processors()}
    settings |= given(options, ("subword", "vocab_size", "workers"))
    settings |= {"validation": _validation_source(options), "progress": _progress()}
    try:
        data.prepare_pairs(source, options.output, **settings)
    except KeyboardInterrupt:
        print("\nFinished parts are kept. Run the same command again to resume.", file=sys.stderr)
        raise
    pairs = data.PreparedPairs(options.output)
    print(
        f"{len(pairs):,} pairs in {len(pairs.shards)} shards, "
        f"{len(pairs.held_out('validation')):,} for validation, "
        f"{len(pairs.held_out('test')):,} for the test\n"
        f"Train with: tf-transformer train --prepared {Path(options.output)}"
    )


def _progress():
    """Return a function that shows the progress and the remaining time on a terminal."""
    starts = {}  # of each task, the time and the number of parts

    def show(what, done, total):
        now = time.monotonic()
        start, begun = starts.setdefault(what, (now, done))
        left = ""
        if begun < done < total:
            seconds = (now - start) / (done - begun) * (total - done)
            left = f", {seconds / 60:.0f} min left"
        show_progress(f"\x1b[K{what}: {done:,} of {total:,} parts{left}", done == total)

    return show


def add_language_model(commands):
    """Add the command `train-lm`."""
    train = add_command(commands, "train-lm", _train_language_model)
    add = train.add_mutually_exclusive_group().add_argument
    add("--text", nargs="+", metavar="FILE", help=f"UTF-8, gzipped or not, {_DOCUMENTS}")
    add("--corpus", help="the first language of an included corpus: en-zh, zh-en, en-fr or fr-en")
    presets = "small, minutes on two cores (default); tiny, seconds"
    add_run_arguments(train, presets, "runs/lm-TEXT-PRESET", "gpt2")


def _train_language_model(options):
    """train a language model on plain text, and continue three texts"""
    require("train", "tokenizers")
    run, model = train_run(options, "LanguageModelRun", _new_language_model)
    if run is None:
        return
    from tf_transformer.generation import continue_texts

    print(f"Perplexity per token of the held-out documents: {run.perplexity(model):.2f}\n")
    tokenizer = run.tokenizer
    # The beginnings of held-out texts, preferably longer ones.
    unread = sorted(tokenizer.encode(run.validation_documents), key=lambda ids: len(ids) < 8)
    for text in continue_texts(model, tokenizer, tokenizer.decode(ids[:3] for ids in unread[:3])):
        print(text)
    print(f"\nModel: {run.folder}")


def _new_language_model(options):
    from tf_transformer.models import LanguageModel
    from tf_transformer.training import LANGUAGE_MODEL_PRESETS, LanguageModelRun

    preset = new_preset(options, LANGUAGE_MODEL_PRESETS, LanguageModel)
    source = _text_source(options)
    folder = new_folder(options, f"runs/lm-{source.name}-{preset.name}", "train-lm")
    return LanguageModelRun(folder, source, preset)


def _text_source(options):
    """Return the `TextSource` of the options, with absolute paths."""
    if options.text:
        return data.TextSource(files=tuple(map(absolute, options.text)))
    return data.TextSource(corpus=getattr(options, "corpus", None) or "en-zh")


def add_pretrain(commands):
    """Add the command `pretrain`."""
    pretrain = add_command(commands, "pretrain", _pretrain)
    add = pretrain.add_argument
    add("--text", nargs="+", metavar="FILE", help=f"one sentence per line, {_DOCUMENTS}")
    add("--vocabulary", metavar="FILE", help="a vocab.txt instead of a new vocabulary")
    start = "a checkpoint to adapt to the texts; its sizes and vocabulary are used"
    add("--start", metavar="FOLDER", help=start)
    rate = "peak learning rate instead of the preset's (with --start: 5e-4)"
    add("--learning-rate", type=float, help=rate)
    each = "instead of the preset's: texts are padded to one of these lengths, longer ones split"
    add("--lengths", type=int, nargs="+", metavar="N", help=each)
    add("--whole-words", action="store_true", default=None, help="mask whole words")
    add_run_arguments(pretrain, "small or tiny (default: small)", "runs/bert-PRESET")


def _pretrain(options):
    """pretrain a small BERT on raw text: masked words and next sentences"""
    require("train", "tokenizers")
    require("bert", "safetensors")
    run, _ = train_run(options, "PretrainingRun", _new_pretraining)
    if run is None:
        return
    from tf_transformer.visualize import training_curves

    try:
        training_curves(run.folder / "history.csv", run.folder / "loss.png")
        print(f"Curves: {run.folder / 'loss.png'}")
    except ImportError as error:  # without matplotlib
        print(f"tf-transformer: no plot of the loss: {error}", file=sys.stderr)
    print(f"Model: {run.model_path}")


def _new_pretraining(options):
    from tf_transformer.distribution import current_workers
    from tf_transformer.training import PRETRAINING_PRESETS, PretrainingRun

    if options.start and options.vocab_size:
        raise ArgumentError("--vocab-size", "none with --start, whose vocabulary is used")
    learning_rate = options.learning_rate
    if learning_rate is None and options.start:
        learning_rate = 5e-4
    preset = new_preset(options, PRETRAINING_PRESETS, peak_learning_rate=learning_rate)
    vocabulary, start = absolute(options.vocabulary), absolute(options.start)
    folder = new_folder(options, f"runs/bert-{preset.name}", "pretrain")
    if current_workers().is_chief:
        check_empty(folder)
    return PretrainingRun(folder, _text_source(options), preset, vocabulary, start)
