"""Training this library's `Transformer`."""

from benchmarks.training.peers.keras_fit import epoch_by_fit
from benchmarks.training.peers.steps import steps
from tf_transformer import FusedAdam, SmoothedCrossentropy, Transformer


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
    """Training steps."""
    return steps("tf_transformer", trainer, case, arrays)
