"""One to three tables of word vectors for source, target and output, at several learning rates."""

from functools import partial

import numpy as np

from trainings.translator import at_rates, trained


def shared_source_target(model):
    """The decoder reads from the encoder's table."""
    model.decoder.embedding.embedding = model.encoder.embedding.embedding


def shared_target_output(model):
    """The output layer is the decoder's table."""
    del model.final_layer
    model.final_layer = None


def recovered(model, tokenizer, pairs):
    """The share of target vectors whose largest logit is that of their own token."""
    vectors = model.decoder.embedding.embedding.embeddings
    found = np.argmax(model.logits(vectors), axis=-1)
    return {"recovered": np.mean(found == np.arange(len(found)))}


apart = partial(trained, also=recovered, course=50, share_embeddings=False)
# Tried up and down until the loss rises.
ARMS = {
    "one table": (partial(trained, course=50), (0.5, 1, 2)),
    "three tables": (apart, (0.25, 0.5, 1)),
}
VARIANTS = {
    **at_rates(ARMS),
    "source = target": partial(apart, change=shared_source_target),
    "target = output": partial(apart, change=shared_target_output),
}
