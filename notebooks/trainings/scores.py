"""Small translators of one layer and one head, with other scores in all of their attention.

Each at several learning rates.
"""

from functools import partial

import keras
import tensorflow as tf

from tf_transformer import Architecture
from tf_transformer.functional.attention.masks import with_key_masks
from tf_transformer.functional.attention.scaled_dot_product import scaled_dot_product_attention
from tf_transformer.functional.attention.scored import additive_attention, multiplicative_attention
from trainings.translator import at_rates, trained


def scored(layer, score):
    """Change how a layer attends; queries and keys get components of variance 1 at any width."""
    for dense in (layer.wq, layer.wk):
        dense.kernel_initializer = keras.initializers.RandomNormal(stddev=layer.d_model**-0.5)
        dense.use_bias = False
    if score == "additive":
        vector = layer.add_weight(shape=(layer.key_dim,), name="score_vector")

    def call(q, k, v, mask=None, causal=False, k_mask=None, v_mask=None, **_):
        mask = with_key_masks(mask, k, k_mask, v_mask)
        q, k, v = (tf.expand_dims(x, 1) for x in (q, k, layer.wv(v)))  # an axis of one head
        if score == "additive":
            kernels = layer.wq.kernel, layer.wk.kernel
            output, weights = additive_attention(q, k, v, *kernels, vector, mask, causal=causal)
        else:
            attend = scaled_dot_product_attention if score == "scaled" else multiplicative_attention
            q, k = layer.wq(q), layer.wk(k)
            output, weights = attend(q, k, v, mask, causal=causal, jit=False)
        return layer.dense(output[:, 0]), weights

    layer.call = call


def change(model, score):
    """Change the three attention layers."""
    [encoder], [decoder] = model.encoder.enc_layers, model.decoder.dec_layers
    for layer in (encoder.mha, decoder.mha1, decoder.mha2):
        scored(layer, score)


def with_score(seed, rate, score, width, epochs=6):
    """Train with one score and one width of queries and keys."""
    return trained(
        seed,
        layers=1,
        num_heads=1,
        architecture=Architecture(key_dim=width),
        change=partial(change, score=score),
        epochs=epochs,
        rate=rate,
        vocabulary=1000,  # to have cheap steps, many of them
        tokens_per_batch=512,
        course=200,
    )


# Tried up and down until the loss rises.
RATES = {"dot": (0.25, 0.5, 1), "scaled": (0.25, 0.5, 1), "additive": (0.5, 1, 2)}
ARMS = {
    f"{score}, 256": (partial(with_score, score=score, width=256), rates)
    for score, rates in RATES.items()
}
VARIANTS = at_rates(ARMS)
