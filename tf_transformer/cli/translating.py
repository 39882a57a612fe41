"""What `tf-transformer translate` prints and writes."""

import functools
import sys

from tf_transformer.export.translation.translate_file import translate_file
from tf_transformer.export.translation.translate_texts import (
    n_best_translations,
    one_line,
    translate_texts,
)


def print_translations(translator, chunks, beam, n_best, most):
    """Print the translations of texts, and say which were too long to be read whole.

    Args:
        translator: a loaded translator.
        chunks: iterable of lists of str, each translated and printed before the next is asked for.
        beam: bool, by beam search.
        n_best: bool, all translations of the beam, with the number of the text and the score.
        most: int, the tokens that the model reads.
    """
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
            for translation in translate_texts(translator, texts, beam=beam, counted=counted):
                print(one_line(translation))
        sys.stdout.flush()
        done += len(texts)


def translate_to_file(translator, source, target, beam, most):
    """`translate_file`, with its progress on a terminal.

    Args:
        translator: a loaded translator.
        source, target: paths.
        beam: bool, by beam search.
        most: int, the tokens that the model reads.
    """

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
            progress=progress,
            counted=functools.partial(_warn, most),
        )
    except KeyboardInterrupt:
        print("\nWhat is written is kept. Go on with the same command.", file=sys.stderr)
        raise


def _warn(most, first, counts):
    for number, length in enumerate(counts, start=first):
        if length > most:
            print(
                f"tf-transformer: text {number} has {length} tokens; the model reads {most}, "
                f"so the rest is left out. Split it into sentences.",
                file=sys.stderr,
            )
