"""Attention and the feed-forward network of a layer in other orders, with as many weights."""

import functools

from tf_transformer.layers import Architecture, MacaronFeedForward
from trainings.translator import trained


def feed_forward_first(model):
    """Run the feed-forward network of each layer before its attention."""
    for layer in (*model.encoder.enc_layers, *model.decoder.dec_layers):
        layer._sublayers = functools.partial(_sublayers, layer)


def _sublayers(layer, x, *attends_and_options):
    *attends, training, tokens = attends_and_options
    join = functools.partial(layer.residual, training=training, tokens=tokens)
    order = [lambda y: (layer.ffn(y), None), *attends]
    parts = [len(order), *range(1, len(order))]  # the norms and dropouts keep their sublayers
    others = []
    for part, sublayer in zip(parts, order, strict=True):
        norm, dropout = (getattr(layer, f"{name}{part}") for name in ("layernorm", "dropout"))
        x, other = join(x, sublayer, norm, dropout)
        others.append(other)
    return x, *others[1:]


VARIANTS = {
    "attention first": trained,
    "feed-forward first": functools.partial(trained, change=feed_forward_first),
    "half before, half after": functools.partial(
        trained, architecture=Architecture(feed_forward=MacaronFeedForward()), dff=128
    ),
}
