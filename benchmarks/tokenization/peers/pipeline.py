"""The input pipeline of a translator, from strings, and the training steps that it feeds."""

import tempfile

import tensorflow as tf

from tf_transformer import (
    BPETokenizer,
    FusedAdam,
    GraphTokenizer,
    SmoothedCrossentropy,
    Transformer,
    load_corpus,
)
from tf_transformer.data import BucketedBatches
from tf_transformer.training import PRESETS

PAIRS = 8000


def variants(case, arrays):
    """Both on the same pairs and batches."""
    preset = PRESETS["small"]
    pairs = load_corpus("en-zh")[-PAIRS:]
    sources, targets = zip(*pairs, strict=True)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        BPETokenizer.train(sources + targets, preset.vocab_size).save(file.name)
        graph = GraphTokenizer.from_file(file.name)
    strings = tf.data.Dataset.from_tensor_slices((list(sources), list(targets)))
    strings = strings.batch(1024, num_parallel_calls=2)

    def batches():
        ids = strings.map(
            lambda *pair: tuple(graph.encode_strings(side) for side in pair), num_parallel_calls=2
        )
        rows = [
            [row for side in sides for row in side.to_list()] for sides in zip(*ids, strict=True)
        ]
        return BucketedBatches(
            *rows,
            start_id=graph.start_id,
            end_id=graph.end_id,
            lengths=preset.lengths,
            tokens_per_batch=preset.tokens_per_batch,
        )

    def strings_to_batches():
        return [sum(1 for _ in batches().dataset(epochs=1))]

    model = Transformer(
        preset.num_layers,
        preset.d_model,
        preset.num_heads,
        preset.dff,
        graph.vocab_size,
        graph.vocab_size,
        pe_input=96,
        pe_target=96,
        rate=preset.rate,
        share_embeddings=True,
    )
    model.build()
    optimizer = FusedAdam(5e-4, 0.9, 0.98, 1e-9)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, SmoothedCrossentropy(0.1), jit_compile=False)
    prepared = batches()

    def training_steps():
        history = model.fit(
            prepared.dataset(epochs=1),
            steps_per_epoch=prepared.steps_per_epoch,
            verbose=0,
        )
        return history.history["loss"]

    return {"strings to batches": strings_to_batches, "training steps": training_steps}
