"""Small BERTs without the nonlinearity of the feed-forward networks, or of attention.

Masked words, at several learning rates. Layer norms, which are nonlinear as well, stay. All have
learned scores by position, so that fixed attention is the whole without q . k. Pre-norm: in so few
steps a post-norm stack does not learn to use q . k, and does worse with it (3.70 nats, 3.31 without).
"""

from functools import partial

import keras
import numpy as np

from tf_transformer import Architecture, Encoder, FeedForward
from tf_transformer.layers import PreNorm
from trainings.translator import LONGEST, adam, at_rates
from trainings.without_norm import sentences


def with_table(layer, content):
    """Add a learned score for each head and pair of positions to `content` times q . k / √H.

    With content 0 the weights are the same in every text, and the output is linear in the values.
    """
    shape = (layer.num_heads, LONGEST, LONGEST)
    table = layer.add_weight(shape=shape, initializer="zeros", name="table")
    attend = layer.attend

    def attend_with_table(q, keys, values, mask=None, wanted=True, bias=None, causal=False):
        return attend(q, content * keys, values, mask, wanted, table, causal)

    layer.attend = attend_with_table


def masked_words(seed, rate, activation="relu", content=1.0, epochs=4):
    """Train on English sentences; the loss of masked words of new sentences, in nats a word."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    rows, vocabulary = sentences()

    def masked(ids):
        """Sentences without two of their words, where these were, and the words."""
        order = np.argsort(np.where(ids != 0, rng.random(ids.shape), 2.0))[:, :2]
        seen = ids.copy()
        np.put_along_axis(seen, order, vocabulary, 1)  # one more id, [MASK]
        return (seen, order), np.take_along_axis(ids, order, 1)

    architecture = Architecture(residual=PreNorm(), feed_forward=FeedForward(activation))
    encoder = Encoder(2, 64, 4, 256, vocabulary + 1, LONGEST, 0.0, architecture=architecture)
    for layer in encoder.enc_layers:
        with_table(layer.mha, content)
    ids, places = (keras.Input((length,), dtype="int32") for length in (LONGEST, 2))
    hidden = encoder(ids, x_mask=keras.ops.not_equal(ids, 0))
    hidden = keras.ops.take_along_axis(hidden, keras.ops.expand_dims(places, -1), axis=1)
    model = keras.Model((ids, places), keras.layers.Dense(vocabulary)(hidden))
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(adam(64, rate), crossentropy, jit_compile=False)
    model.fit(*masked(np.tile(rows[1000:], (epochs, 1))), batch_size=64, shuffle=False, verbose=0)
    held_out = masked(np.tile(rows[:1000], (10, 1)))
    return {"loss": model.evaluate(*held_out, batch_size=1000, verbose=0)}


# Tried up and down until the loss rises.
ARMS = {
    "everything": (masked_words, (0.5, 1, 2)),
    "linear FFN": (partial(masked_words, activation="linear"), (0.5, 1, 2)),
    "fixed attention": (partial(masked_words, content=0.0), (0.5, 1, 2, 4)),
}
VARIANTS = at_rates(ARMS)
