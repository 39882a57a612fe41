"""Train a model with the small preset and print its scores as JSON.

`python -m benchmarks.translation.train_and_score preset|tf_transformer|keras-hub CORPUS SEED`. The
libraries have the paper's model instead of the preset's, and everything except its layers is the
same: split, vocabulary, batches, schedule, loss, epochs, average, greedy decoding, BLEU.
"""

import json
import sys
import tempfile
import time

import numpy as np

from tf_transformer import BPETokenizer, GraphBPE, Translator
from tf_transformer.cli.exporting import SENTENCES
from tf_transformer.data import PairSource, group_references
from tf_transformer.export import translate_texts
from tf_transformer.training import PRESETS, TrainingRun, score_translations


def hub_run(folder, source, preset):
    """A run with a model of keras-hub's layers."""
    import tensorflow as tf

    from benchmarks.decoding.peers.hub_samplers import Decoder
    from benchmarks.training.peers import hub

    class HubRun(TrainingRun):
        def new_model(self, tokenizer):
            sizes = {"layers": preset.num_layers, "width": preset.d_model}
            sizes["vocab"] = tokenizer.vocab_size
            sizes |= {"heads": preset.num_heads, "dff": preset.dff}
            return hub.model(sizes, preset.rate)

    def translate(run, model, texts):
        tokenizer = BPETokenizer.load(run.tokenizer_path)
        decode = tf.function(Decoder(model, tokenizer.end_id).decode, autograph=False)
        translations = []
        for source in tokenizer.encode(texts):
            source = [*source, tokenizer.end_id]
            padded = source + [0] * (-len(source) % 8)  # few shapes, hence few traces
            prompt = np.zeros((1, 2 * len(padded) + 11), np.int32)
            prompt[0, 0] = tokenizer.start_id
            ids = decode(tf.constant([padded]), tf.constant(prompt))[0, 1:]
            ids = ids[: 2 * len(source) + 10].numpy().tolist()
            ids = ids[: ids.index(tokenizer.end_id)] if tokenizer.end_id in ids else ids
            translations.extend(tokenizer.decode([ids]))
        return translations

    return HubRun(folder, source, preset), translate


def own_run(folder, source, preset):
    """A run of this library."""

    def translate(run, model, texts):
        translator = Translator(model, GraphBPE.from_file(run.tokenizer_path))
        return translate_texts(translator, texts)

    return TrainingRun(folder, source, preset), translate


def main(library, corpus, seed):
    """Train, translate the test split, score."""
    preset = PRESETS["small"].with_changes({"seed": int(seed)})
    if library != "preset":
        older = {"epochs": 18, "short_repeats": 1}  # as in the recorded results
        preset = preset.with_changes({"architecture": {}, "dff": 512, **older})
    make = hub_run if library == "keras-hub" else own_run
    with tempfile.TemporaryDirectory() as folder:
        run, translate = make(folder, PairSource(corpus=corpus), preset)
        start = time.perf_counter()
        model = run.train()
        seconds = time.perf_counter() - start
        sources, references = group_references(run.split.test)
        scores = score_translations(
            translate(run, model, sources), references, run.source.target_language
        )
        closing = translate(run, model, [*SENTENCES[corpus], "Hello!"])
    measured = {"seconds": seconds, "weights": model.count_params(), "closing": closing}
    print(json.dumps({**scores, **measured}))


if __name__ == "__main__":
    main(*sys.argv[1:])
