"""A translator of this library, computed by CTranslate2 behind this library's server."""

import os
import tempfile

import ctranslate2
import tensorflow as tf

from benchmarks.decoding.peers.batches import limit, padded
from benchmarks.decoding.peers.ctranslate2_engine import convert
from benchmarks.decoding.translate import model_arrays
from tf_transformer.export import load_transformer, shipped_model


class CTranslate2Task:
    """Greedy translation for `create_app`, with one batch per core in parallel.

    Args:
        name: str, an included model, whose tokenizer is also used.
        compute_type: "float32" or "int8".
    """

    name = "translate"

    def __init__(self, name, compute_type):
        model, self._tokenizer = load_transformer(shipped_model(name))
        sizes, arrays = model_arrays(model, self._tokenizer, [[]])
        self._longest = sizes["pe_input"] - 1
        self.threads = os.cpu_count()
        with tempfile.TemporaryDirectory() as folder:
            convert(sizes, arrays).save(folder)
            self._translator = ctranslate2.Translator(
                folder,
                device="cpu",
                compute_type=compute_type,
                inter_threads=self.threads,
                intra_threads=1,
            )

    def __call__(self, texts):
        """See `Task`."""
        rows = self._tokenizer.encode_strings(tf.constant(texts)).to_list()
        names = [
            [f"t{id}" for id in [*row[: self._longest], self._tokenizer.end_id]] for row in rows
        ]
        found = self._translator.translate_batch(
            names,
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=limit(max(map(len, names))),
        )
        ids = padded([int(name[1:]) for name in result.hypotheses[0]] for result in found)
        translations = self._tokenizer.decode_ids(tf.constant(ids)).numpy()
        return [{"translation": text.decode("utf-8")} for text in translations]
