"""What each attention, each mask and the shift of the target are good for."""

from functools import partial

import tensorflow as tf

from trainings.translator import trained


def encoder_attentions(model):
    """The self-attention of every encoder layer."""
    return [layer.mha for layer in model.encoder.enc_layers]


def decoder_attentions(model):
    """The self-attention of every decoder layer."""
    return [layer.mha1 for layer in model.decoder.dec_layers]


def cross_attentions(model):
    """The attention to the encoder of every decoder layer."""
    return [layer.mha2 for layer in model.decoder.dec_layers]


def with_masks(choose, masks_of):
    """A change: other masks for the attentions of `choose`, from a function of (q, mask, causal)."""

    def change(model):
        for attention in choose(model):
            attention.attend = partial(_attend, attention.attend, masks_of)

    return change


def _attend(attend, masks_of, q, keys, values, mask, wanted, bias=None, causal=False):
    mask, causal = masks_of(q, mask, causal)
    return attend(q, keys, values, mask, wanted, bias, causal)


def itself(q, mask, causal):
    """Every word attends to itself alone."""
    return 1.0 - tf.eye(tf.shape(q)[1]), False


def without_sequence_mask(q, mask, causal):
    """The future may be attended to."""
    return mask, False


def without_cross_attention(model):
    """The decoder never sees the source."""
    for attention in cross_attentions(model):
        attention.attend = lambda q, *rest: (tf.zeros_like(q), None)


def reading(ids_of):
    """A change: the decoder reads other ids than it is given."""

    def change(model):
        embedding = model.decoder.embedding
        call = embedding.call
        embedding.call = lambda ids, training=None, start=0: call(ids_of(ids), training, start)

    return change


def not_shifted(ids):
    """Position t reads the token that it is to predict; the last one reads padding."""
    return tf.pad(ids[:, 1:], [[0, 0], [0, 1]])


def end_first(ids):
    """The end of a sentence, 2, in place of its start, 1, as the first input."""
    return tf.where(ids == 1, 2, ids)


VARIANTS = {
    "as it is": trained,
    "encoder words alone": partial(trained, change=with_masks(encoder_attentions, itself)),
    "decoder words alone": partial(trained, change=with_masks(decoder_attentions, itself)),
    "no cross-attention": partial(trained, change=without_cross_attention),
    "future seen": partial(trained, change=with_masks(decoder_attentions, without_sequence_mask)),
    "not shifted": partial(trained, change=reading(not_shifted)),
    "end first": partial(trained, change=reading(end_first)),
}
