"""This library, as the benchmarks call it."""

import tensorflow as tf
from peers.keras_fit import epoch_by_fit
from peers.steps import steps

from tf_transformer import FusedAdam, SmoothedCrossentropy, Transformer, greedy_decode


def _model(sizes, rate):
    vocab = sizes["vocab"]
    model = Transformer(
        sizes["layers"],
        sizes["width"],
        sizes["heads"],
        sizes["dff"],
        vocab,
        vocab,
        pe_input=sizes["positions"],
        pe_target=sizes["positions"],
        rate=rate,
        share_embeddings=True,
    )
    model.build()
    return model


def trainer(sizes, rate):
    """A function that trains on batches and returns their mean loss."""
    model = _model(sizes, rate)
    model.compile(FusedAdam(5e-4, 0.9, 0.98, 1e-9), SmoothedCrossentropy(0.1), jit_compile=False)
    return epoch_by_fit(model)


def variants(case, arrays):
    """Training steps, for `arena.py`."""
    return steps("tf_transformer", trainer, case, arrays)


def decoders(sizes):
    """Functions `decode(source, steps)` by name."""
    model = _model(sizes, 0.0)

    @tf.function(reduce_retracing=True)
    def decode(source, steps):
        return greedy_decode(
            model.step,
            model.start(source, steps),
            tf.shape(source)[0],
            start_id=1,
            end_id=-1,  # none: every peer decodes the same number of steps
            max_length=steps,
        )

    return {
        "tf_transformer": lambda source, steps: decode(
            tf.constant(source), tf.constant(steps)
        ).numpy()
    }
