"""Sequence-level knowledge distillation: a student learns its teacher's translations."""

import json
from pathlib import Path

from tf_transformer.data.replacing import replacing
from tf_transformer.errors import ArgumentError
from tf_transformer.json_text import parse_json


def distilled_pairs(translate, sources, folder, *, part_size=1000, progress=None):
    """Return a teacher's translations as pairs for a student to learn, translating what is missing.

    Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2: the student is trained
    on the teacher's beam search output instead of the references. The sources may be those of the
    training pairs, or any further text in the source language.

    The translations are kept in the folder, a file for every `part_size` sources, each written
    whole or not at all: after an interruption, the same call continues with the first missing one.
    The folder belongs to one teacher, since nothing in it says whose translations it holds.

    Args:
        translate: function, list of str -> list of str of the same length, such as a `Translator`
            with `translate_texts`.
        sources: list of str.
        folder: str or Path, made if it is missing.
        part_size: int, sources in a file; an interruption loses the work on one file.
        progress: None, or a function called with the number of sources done.

    Returns:
        list of `(source, translation)`; sources with an empty translation are left out.

    Raises:
        ValueError: If `part_size` is below 1, the folder holds translations of other sources, or
            `translate` returns another number of texts.

    Example:
        >>> distilled_pairs(lambda texts: [t.upper() for t in texts], ["a", "b"], "distilled")
        [('a', 'A'), ('b', 'B')]
    """
    if part_size < 1:
        raise ArgumentError("part_size", "at least 1", part_size)
    sources, pairs = list(sources), []
    for first in range(0, len(sources), part_size):
        part = sources[first : first + part_size]
        pairs += _part(translate, part, Path(folder) / f"{first:09d}.json")
        if progress is not None:
            progress(first + len(part))
    return [(source, translation) for source, translation in pairs if translation]


def _part(translate, sources, path):
    """The pairs of one file, which is written if it is missing."""
    if path.is_file():
        try:
            pairs = parse_json(path.read_bytes())
        except ValueError:  # damaged
            pairs = []
        if [source for source, _ in pairs] != sources:
            raise ArgumentError(
                "folder",
                f"translations of these sources in {path}",
                "others",
                "Choose another folder, or delete it to translate again.",
            )
        return pairs
    translations = translate(sources)
    if len(translations) != len(sources):
        raise ArgumentError("translate", f"{len(sources)} translations", len(translations))
    pairs = list(zip(sources, translations, strict=True))
    with replacing(path) as beside:
        beside.write_text(json.dumps(pairs, ensure_ascii=False, indent=0) + "\n", "utf-8")
    return pairs
