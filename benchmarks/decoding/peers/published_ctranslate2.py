"""A published model in CTranslate2, by its own converter, which stores float32.

The converter reads a tokenizer; ids are named "t0", "t1" and so on in its place.
"""

import os
from pathlib import Path

import ctranslate2
from ctranslate2.converters import TransformersConverter

from benchmarks.decoding.peers.published_tasks import tasks


class _Names:
    """The part of a tokenizer that the converter reads."""

    def __init__(self, case):
        names = [f"t{id}" for id in range(case["vocab_size"])]
        if case["translates"]:
            names[-1] = "<pad>"  # which the converter of Marian leaves out
        self._names = names
        self.bos_token = self.eos_token = self.unk_token = names[case["end_id"]]
        self.pad_token = names[case["pad_id"]]
        self.added_tokens_encoder = {}

    def get_vocab(self):
        return {name: id for id, name in enumerate(self._names)}


class _Converter(TransformersConverter):
    def __init__(self, case):
        super().__init__(case["folder"])
        self._names = _Names(case)

    def load_tokenizer(self, tokenizer_class, model_name_or_path, **options):
        return self._names


def variants(case, arrays):
    """`translate_batch` or `generate_batch`."""
    folder, count = Path(f"{case['folder']}-ctranslate2"), case["new_tokens"]
    if not folder.exists():
        _Converter(case).convert(folder)
    options = {"compute_type": case["type"], "intra_threads": os.cpu_count()}
    if case["translates"]:
        model = ctranslate2.Translator(f"{folder}", **options)
    else:
        model = ctranslate2.Generator(f"{folder}", **options)

    def generate(ids, beams):
        texts = [[f"t{id}" for id in row] for row in ids]
        if case["translates"]:
            lengths = {"min_decoding_length": count, "max_decoding_length": count}
            results = model.translate_batch(texts, beam_size=beams, **lengths)
            names = [result.hypotheses[0] for result in results]
        else:
            lengths = {"min_length": count, "max_length": count}
            results = model.generate_batch(
                texts, beam_size=beams, include_prompt_in_result=False, **lengths
            )
            names = [result.sequences[0] for result in results]
        return [[int(name[1:]) for name in row] for row in names]

    return tasks("CTranslate2", case, arrays, generate)
