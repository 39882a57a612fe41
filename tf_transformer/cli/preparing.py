"""The command `prepare`: sentence pairs to shards of token ids, for data larger than memory."""

import os
import sys
import time
from pathlib import Path

from tf_transformer.cli.pair_arguments import add_pair_arguments, pair_source, validation_source
from tf_transformer.cli.tensorflow_start import require
from tf_transformer.errors import ArgumentError


def add_prepare(commands):
    """Add the parser of this file."""
    prepare = commands.add_parser(
        "prepare", help="turn sentence pairs larger than memory into shards for train --prepared"
    )
    add_pair_arguments(prepare, "none", "sentences")
    prepare.add_argument(
        "--validation-file", nargs="+", metavar="FILE", help="your own validation set, as of train"
    )
    prepare.add_argument(
        "--subword", default="bpe", help="bpe, wordpiece or unigram (default: bpe)"
    )
    prepare.add_argument(
        "--vocab-size", type=int, default=8000, help="of both languages (default: 8000)"
    )
    prepare.add_argument(
        "--workers", type=int, help="processes side by side (default: one for each core)"
    )
    prepare.add_argument("--output", required=True, metavar="FOLDER", help="to write")
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
        print("\nWhat is done is kept. Go on with the same command.", file=sys.stderr)
        raise
    pairs = PreparedPairs(options.output)
    print(
        f"{len(pairs):,} pairs in {len(pairs.shards)} shards, "
        f"{len(pairs.held_out('validation')):,} for validation, "
        f"{len(pairs.held_out('test')):,} for the test\n"
        f"Train with: tf-transformer train --prepared {Path(options.output)}"
    )


class _Progress:
    """Shows on a terminal what is done and how long the rest takes."""

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
