"""The commands train and prepare."""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from tf_transformer.cli.arguments import (
    add_pair_arguments,
    add_run_arguments,
    new_folder,
    new_preset,
    pair_source,
    train_run,
    validation_source,
)
from tf_transformer.cli.exporting import export_runs, sentences_to_show, translated
from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.errors import ArgumentError

# The options of `FineTuning` and their defaults here.
_SETTINGS = {
    "epochs": (3, "passes over the pairs"),
    "batch_size": (64, "pairs per step; each has the others' documents as negatives"),
    "learning_rate": (2e-5, "peak learning rate"),
    "max_length": (64, "maximum number of tokens of a text"),
    "seed": (1, "of dropout and the order of the pairs"),
}


def add_train_pairs(commands):
    """Add the parser of this file."""
    pairs = commands.add_parser(
        "train-pairs", help="train a sentence encoder to find the document of a query, score it"
    )
    pairs.add_argument(
        "--model", metavar="FOLDER", required=True, help="a BERT checkpoint with its vocabulary"
    )
    pairs.add_argument("--train", metavar="TSV", required=True, help="query, tab, document")
    pairs.add_argument(
        "--validation", metavar="TSV", help="pairs to score with (default: every tenth of --train)"
    )
    pairs.add_argument("--output", metavar="FOLDER", required=True)
    pairs.add_argument(
        "--temperature", type=float, default=0.05, help="of the scores (default: 0.05)"
    )
    pairs.add_argument(
        "--hard-negatives",
        type=int,
        default=0,
        metavar="N",
        help="number of wrong documents per query that the model finds before training",
    )
    for name, (default, meaning) in _SETTINGS.items():
        pairs.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            help=f"{meaning} (default: {default})",
        )
    pairs.set_defaults(run=_train_pairs)


def _train_pairs(options):
    require("safetensors", "bert")
    output = Path(options.output)
    if output.exists() and any(output.iterdir()):
        raise ArgumentError("--output", "a new folder", f"{output}, which is not empty")
    for name, least in (("hard_negatives", 0), ("batch_size", 2)):
        if getattr(options, name) < least:
            raise ArgumentError(name, f"at least {least}", getattr(options, name))
    if not options.temperature > 0:
        raise ArgumentError("temperature", "a number above 0", options.temperature)
    from tf_transformer.data.readers import read_tsv

    train = read_tsv(options.train, "--train")
    if options.validation:
        validation = read_tsv(options.validation, "--validation")
    else:
        train, validation = [pair for n, pair in enumerate(train) if n % 10], train[::10]
    documents = list(dict.fromkeys(document for _, document in train))
    if len(documents) < options.hard_negatives + 2:
        raise ArgumentError(
            "--train",
            f"at least {options.hard_negatives + 2} different documents to train on",
            len(documents),
        )
    import_tensorflow()
    import keras

    from tf_transformer.export import TextEncoder
    from tf_transformer.export.text_models import read_text_settings
    from tf_transformer.models.bert import SentenceEncoder, read_tokenizer
    from tf_transformer.training import FineTuning, hard_negatives, retrieval_scores, train_pairs

    settings = FineTuning(**{name: getattr(options, name) for name in _SETTINGS})
    keras.utils.set_random_seed(settings.seed)
    encoder = SentenceEncoder.from_pretrained(options.model, unpad=True, normalize=True)
    tokenizer = read_tokenizer(options.model)
    longest, lowercase = read_text_settings(options.model)
    exported = TextEncoder(encoder, tokenizer, longest, lowercase)
    if lowercase:
        train = [(query.lower(), document.lower()) for query, document in train]
    print(f"{len(train)} pairs to train on, {len(validation)} to score with", flush=True)
    scores = {"before": retrieval_scores(*_searched(exported, validation))}
    negatives = None
    if options.hard_negatives:
        documents = list(dict.fromkeys(document for _, document in train))
        rows = hard_negatives(*_searched(exported, train), options.hard_negatives)
        negatives = [[documents[n] for n in row] for row in rows]
    output.mkdir(parents=True, exist_ok=True)
    train_pairs(
        encoder,
        tokenizer,
        train,
        settings,
        temperature=options.temperature,
        negatives=negatives,
        callbacks=[keras.callbacks.CSVLogger(output / "history.csv")],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    scores["after"] = retrieval_scores(*_searched(exported, validation))
    encoder.save_pretrained(output / "model", tokenizer_from=options.model)
    exported.save(output / "saved_model")
    text = json.dumps({"scores": scores, "settings": dataclasses.asdict(settings)}, indent=2)
    (output / "result.json").write_text(text + "\n", encoding="utf-8")
    print(f"{text}\nModel: {output / 'model'}, SavedModel: {output / 'saved_model'}")


def _searched(encoder, pairs):
    """Return vectors of queries and distinct documents, and the correct rows of each query."""
    import numpy as np

    from tf_transformer.export import embed_lines

    queries = [query for query, _ in pairs]
    rows = {}
    for _, document in pairs:
        rows.setdefault(document, len(rows))
    own = {}
    for query, document in pairs:
        own.setdefault(query, set()).add(rows[document])
    vectors = (
        np.concatenate(list(embed_lines(encoder.encode, texts))) for texts in (queries, list(rows))
    )
    return *vectors, [own[query] for query in queries]


def add_train(commands):
    """Add the parser of this file."""
    train = commands.add_parser(
        "train", help="train a translator, score it, export it, translate three sentences"
    )
    add_pair_arguments(train, "en-zh", "your own sentences")
    train.add_argument(
        "--prepared", metavar="FOLDER", help="or the output of tf-transformer prepare, of any size"
    )
    train.add_argument(
        "--validation-file",
        nargs="+",
        metavar="FILE",
        help="your own validation set: a TSV file, or a source and a target file (default: 2 %% of "
        "the data)",
    )
    train.add_argument(
        "--subword", help="bpe, wordpiece or unigram: how words are split (default: bpe)"
    )
    add_run_arguments(
        train,
        "small, minutes on two cores (default); tiny, seconds, learns next to nothing; base, the "
        "paper's, for large corpora and an accelerator",
        "runs/DATA-PRESET",
        "transformer-base, transformer-big, transformer-tiny, macaron-base",
    )
    train.add_argument("--tensorboard", action="store_true", help="write logs for TensorBoard")
    train.set_defaults(run=_train)


def _train(options):
    packages = {"tokenizers": "train", "sacrebleu": "train"}
    callbacks = []
    if options.tensorboard:
        packages["tensorboard"] = "tensorboard"
        callbacks.append(_tensorboard)
    run, _ = train_run(options, "TrainingRun", _new_run, packages, callbacks)
    if run is None:
        return
    translator = export_runs([run], run.folder / "saved_model")
    print()
    for sentence in sentences_to_show(run):
        print(f"{sentence}\t{translated(translator, sentence)}")
    print(f"\nModel: {run.folder / 'saved_model'}")


def _tensorboard(run):
    import keras

    return keras.callbacks.TensorBoard(run.folder / "tensorboard")


def _new_run(options):
    from tf_transformer.data import PairSource
    from tf_transformer.models import Transformer
    from tf_transformer.training import PRESETS, TrainingRun

    if options.prepared and (options.subword or options.vocab_size):
        raise ArgumentError("--subword, --vocab-size", "none with --prepared, which has its own")
    source = pair_source(options) or PairSource(corpus="en-zh")
    preset = new_preset(options, PRESETS, Transformer)
    folder = new_folder(options, f"runs/{source.name}-{preset.name}", "train")
    return TrainingRun(folder, source, preset, validation_source(options))


def add_prepare(commands):
    """Add the parser of this file."""
    prepare = commands.add_parser(
        "prepare", help="turn sentence pairs larger than memory into shards for train --prepared"
    )
    add_pair_arguments(prepare, "none", "sentences")
    prepare.add_argument(
        "--validation-file", nargs="+", metavar="FILE", help="your own validation set, as in train"
    )
    prepare.add_argument(
        "--subword", default="bpe", help="bpe, wordpiece or unigram (default: bpe)"
    )
    prepare.add_argument(
        "--vocab-size", type=int, default=8000, help="of both languages (default: 8000)"
    )
    prepare.add_argument("--workers", type=int, help="number of processes (default: one per core)")
    prepare.add_argument("--output", required=True, metavar="FOLDER", help="the folder to write")
    prepare.set_defaults(run=_prepare)


def _prepare(options):
    require("tokenizers", "train")
    workers = options.workers if options.workers is not None else len(os.sched_getaffinity(0))
    from tf_transformer.data import PreparedPairs, prepare_pairs

    source = pair_source(options)
    if source is None:
        raise ArgumentError("--corpus, --source-file, --tsv", "one of them", "none")
    try:
        prepare_pairs(
            source,
            options.output,
            subword=options.subword,
            vocab_size=options.vocab_size,
            validation=validation_source(options),
            workers=workers,
            progress=_Progress(),
        )
    except KeyboardInterrupt:
        print("\nFinished parts are kept. Run the same command again to resume.", file=sys.stderr)
        raise
    pairs = PreparedPairs(options.output)
    print(
        f"{len(pairs):,} pairs in {len(pairs.shards)} shards, "
        f"{len(pairs.held_out('validation')):,} for validation, "
        f"{len(pairs.held_out('test')):,} for the test\n"
        f"Train with: tf-transformer train --prepared {Path(options.output)}"
    )


class _Progress:
    """Shows the progress and the remaining time on a terminal."""

    def __init__(self):
        self.what, self.start, self.begun = None, 0.0, 0

    def __call__(self, what, done, total):
        if not sys.stderr.isatty():
            return
        now = time.monotonic()
        if what != self.what:
            self.what, self.start, self.begun = what, now, done
        left = ""
        if self.begun < done < total:
            seconds = (now - self.start) / (done - self.begun) * (total - done)
            left = f", {seconds / 60:.0f} min left"
        end = "\n" if done == total else ""
        print(
            f"\r\x1b[K{what}: {done:,} of {total:,} parts{left}",
            end=end,
            file=sys.stderr,
            flush=True,
        )
