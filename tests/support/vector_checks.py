"""Comparisons with tests/vectors. Tests call them on the library; mutation tests call them on a
library with one deliberate error and expect them to fail.

The committed sizes: N=7 heads, D=14, F=11, V=13 (source) and 19 (target).
"""

import keras
import parameter_trees as trees
import tensorflow as tf
from loading import case, close, load, params, variables_of, vectors

from tf_transformer.layers import DecoderLayer, EncoderLayer, MultiHeadAttention
from tf_transformer.models import Transformer

N, D, F = 7, 14, 11
ATTENTION_CASES = ("open", "padding", "look_ahead", "blocked_row", "wide")


def attention_case(name):
    """Return `(q, k, v, mask)`, mask None or 1 = blocked, and `(output, weights)`."""
    shared, own = vectors("attention"), case("attention", name)
    q, k, v = (own.get(part, shared[part]) for part in ("q", "k", "v"))
    return (q, k, v, own.get("mask")), (own["output"], own["weights"])


def check_attention(attend, name):
    """Check `attend(q, k, v, mask)` -> (output, weights) against one of ATTENTION_CASES."""
    inputs, (output, weights) = attention_case(name)
    actual, actual_weights = attend(*inputs)
    close(actual, output)
    close(actual_weights, weights)


def check_multi_head_attention(**options):
    data = case("layers", "mha")
    layer = MultiHeadAttention(D, N, **options)
    layer.build(data["q"].shape, data["k"].shape, data["v"].shape)
    load(layer, params("layers", "mha"))
    output, weights = layer(data["q"], data["k"], data["v"], data["mask"])
    close(output, data["output"])
    close(weights, data["weights"])


def check_encoder_layer(**options):
    data = case("layers", "encoder_layer")
    layer = EncoderLayer(D, N, F, **options)
    layer.build(data["x"].shape)
    load(layer, params("layers", "encoder_layer"))
    close(layer(data["x"], False, data["mask"]), data["out2"])


def check_decoder_layer(**options):
    data = case("layers", "decoder_layer")
    layer = DecoderLayer(D, N, F, **options)
    layer.build(data["x"].shape, data["enc_output"].shape)
    load(layer, params("layers", "decoder_layer"))
    masks = data["look_ahead_mask"], data["padding_mask"]
    out3, block1, block2 = layer(data["x"], data["enc_output"], False, *masks)
    close(out3, data["out3"])
    close(block1, data["weights_block1"])
    close(block2, data["weights_block2"])


def reference_transformer(**options):
    """Return a Transformer with the committed parameters."""
    model = Transformer(2, D, N, F, 13, 19, pe_input=11, pe_target=12, rate=0.1, **options)
    model.build()
    return load(model, params("transformer"))


def check_transformer(**options):
    """Check logits and all attention weights under padding and look-ahead masks."""
    data = vectors("transformer")
    model = reference_transformer(**options)
    logits, weights = model((data["inp"], data["tar"]), False, True)
    close(logits, data["logits"])
    expected = case("transformer", "attention")
    assert weights.keys() == expected.keys()
    for name, array in expected.items():
        close(weights[name], array)


def check_tied_logits(**options):
    data = vectors("transformer")
    model = reference_transformer(**options)
    masks = data["enc_padding_mask"], data["combined_mask"], data["dec_padding_mask"]
    enc_output = model.encoder(data["inp"], False, masks[0])
    close(enc_output, data["enc_output"])
    dec_output, _ = model.decoder(data["tar"], enc_output, False, *masks[1:])
    close(model.decoder.embedding.logits(dec_output), data["tied_logits"])


def check_gradients(loss, **options):
    """Check d loss(labels, logits) / d parameter, where the gradients are committed."""
    data = vectors("transformer")
    model = reference_transformer(**options)
    flat = trees.flatten(variables_of(model))
    expected = case("transformer", "grad")
    with tf.GradientTape() as tape:
        value = loss(data["labels"], model((data["inp"], data["tar"]), training=False))
    close(value, data["loss_mean"])
    gradients = tape.gradient(value, [flat[name].value for name in expected])
    for gradient, array in zip(gradients, expected.values(), strict=True):
        close(keras.ops.convert_to_numpy(tf.convert_to_tensor(gradient)), array)


LAYER_CHECKS = {
    "multi_head_attention": check_multi_head_attention,
    "encoder_layer": check_encoder_layer,
    "decoder_layer": check_decoder_layer,
    "transformer": check_transformer,
    "tied_logits": check_tied_logits,
}
