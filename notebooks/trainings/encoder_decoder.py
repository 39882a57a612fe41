"""What each attention, each mask and the shift of the target are good for."""

from functools import partial

import keras
import tensorflow as tf

from trainings.translator import bleu, trained


def encoder_attentions(model):
    """The self-attention of every encoder layer."""
    return [layer.mha for layer in model.encoder.enc_layers]


def decoder_attentions(model):
    """The self-attention of every decoder layer."""
    return [layer.mha1 for layer in model.decoder.dec_layers]


def cross_attentions(model):
    """The attention to the encoder of every decoder layer."""
    return [layer.mha2 for layer in model.decoder.dec_layers]


def with_masks(choose, *masks_of):
    """A change: other masks for the attentions of `choose`, from functions of (q, mask, causal)."""

    def change(model):
        for attention in choose(model):
            attention.attend = partial(_attend, attention.attend, masks_of)

    return change


def _attend(attend, masks_of, q, keys, values, mask, wanted, bias=None, causal=False):
    for masks in masks_of:
        mask, causal = masks(q, mask, causal)
    return attend(q, keys, values, mask, wanted, bias, causal)


def itself(q, mask, causal):
    """Every word attends to itself alone."""
    return 1.0 - tf.eye(tf.shape(q)[1]), False


def without_padding_mask(q, mask, causal):
    """Padding may be attended to."""
    return None, causal


def without_sequence_mask(q, mask, causal):
    """The future may be attended to."""
    return mask, False


def with_sequence_mask(q, mask, causal):
    """The future may not be attended to."""
    return mask, True


def without_cross_attention(model):
    """The decoder never sees the source."""
    for attention in cross_attentions(model):
        attention.attend = lambda q, *rest: (tf.zeros_like(q), None)


def recurrent(model):
    """Recurrent layers in place of self-attention, as before the Transformer."""
    for attention in encoder_attentions(model):
        half = keras.layers.GRU(attention.d_model // 2, return_sequences=True)
        _read_by(attention, keras.layers.Bidirectional(half))
    for attention in decoder_attentions(model):
        _read_by(attention, keras.layers.GRU(attention.d_model, return_sequences=True))


def _read_by(attention, network):
    network.build((None, None, attention.d_model))
    attention.recurrent = network
    attention.attend = lambda q, keys, values, mask, *rest: (
        network(q, mask=tf.equal(mask[:, 0, 0], 0.0)),
        None,
    )


def all_of(*changes):
    """One change after another."""

    def change(model):
        for one in changes:
            one(model)

    return change


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


def more_padding(model, tokenizer, pairs):
    """BLEU with 20 more places of padding after every source."""

    def padded(inputs, training):
        source, target = inputs
        return model((tf.pad(source, [[0, 0], [0, 20]]), target), training=training)

    return {"bleu_padded": bleu(padded, tokenizer, pairs)}


alone_in_encoder = with_masks(encoder_attentions, itself)
alone_in_decoder = with_masks(decoder_attentions, itself)
padding_in_encoder = with_masks(encoder_attentions, without_padding_mask)
padding_in_cross = with_masks(cross_attentions, without_padding_mask)
changed = partial(trained, also=more_padding)
VARIANTS = {
    "as it is": partial(changed, course=50),
    "encoder words alone": partial(changed, change=alone_in_encoder),
    "decoder words alone": partial(changed, change=alone_in_decoder),
    "words alone": partial(changed, change=all_of(alone_in_encoder, alone_in_decoder)),
    "recurrent": partial(trained, change=recurrent),
    "no cross-attention": partial(trained, change=without_cross_attention),
    "padding seen in encoder": partial(changed, change=padding_in_encoder),
    "padding seen in cross": partial(changed, change=padding_in_cross),
    "padding seen": partial(changed, change=all_of(padding_in_encoder, padding_in_cross)),
    "future seen": partial(trained, change=with_masks(decoder_attentions, without_sequence_mask)),
    "encoder causal": partial(trained, change=with_masks(encoder_attentions, with_sequence_mask)),
    "not shifted": partial(trained, change=reading(not_shifted)),
    "end first": partial(trained, change=reading(end_first)),
}
