"""What `tf-transformer translate` prints and writes."""

import dataclasses
import functools
import sys

from tf_transformer.data.readers import one_line
from tf_transformer.export.translation.translate_texts import (
    n_best_translations,
    translate_file,
    translate_texts,
)


def print_translations(translator, chunks, n_best, most, *, beam=False, sample=None):
    """Print the translations of texts, and report which texts are too long for the model."""
    done = 0
    for texts in chunks:
        counted = functools.partial(_warn, most, done + 1)
        if n_best:
            results = n_best_translations(translator, texts, counted=counted)
            for number, found in enumerate(results, done + 1):
                for translation, score in found:
                    if score > -float("inf"):
                        print(f"{number}\t{score:.4f}\t{one_line(translation)}")
        else:
            part = sample and dataclasses.replace(sample, seed=sample.seed + done)
            translations = translate_texts(
                translator, texts, beam=beam, sample=part, counted=counted
            )
            for translation in translations:
                print(one_line(translation))
        sys.stdout.flush()
        done += len(texts)


def translate_to_file(translator, source, target, most, *, beam=False, sample=None):
    """Run `translate_file`, and show its progress on a terminal."""

    def progress(lines, share):
        if sys.stderr.isatty():
            end = "\n" if share == 1 else ""
            print(f"\r{lines:,} lines, {share:.0%}", end=end, file=sys.stderr, flush=True)

    try:
        translate_file(
            translator,
            source,
            target,
            beam=beam,
            sample=sample,
            progress=progress,
            counted=functools.partial(_warn, most),
        )
    except KeyboardInterrupt:
        print("\nThe translations so far are kept. Resume with the same command.", file=sys.stderr)
        raise


def _warn(most, first, counts):
    for number, length in enumerate(counts, start=first):
        if length > most:
            print(
                f"tf-transformer: text {number} has {length} tokens; the model reads {most}, "
                f"so the rest is left out. Split it into sentences.",
                file=sys.stderr,
            )
