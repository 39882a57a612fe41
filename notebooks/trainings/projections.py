"""What the projections of queries, keys and values must be for a small translator to learn."""

from functools import partial
from itertools import combinations

import keras
import numpy as np

from tf_transformer import Architecture, create_padding_mask
from trainings.translator import batches, corpus, trained


def heads_apart(weights, real):
    """The Jensen-Shannon divergence of two heads of a layer, in bits, the mean of all pairs.

    Args:
        weights: (B, N, T, S), of one layer.
        real: bool (B, T), False for padding.
    """
    return np.mean([_divergence(*pair) for pair in combinations(_rows(weights, real), 2)])


def on_itself(weights, real):
    """The mean weight that a token gives to itself; the arguments as in `heads_apart`."""
    return np.diagonal(weights, axis1=2, axis2=3).transpose(0, 2, 1)[real].mean()


def _rows(weights, real):
    return np.asarray(weights, np.float64).transpose(1, 0, 2, 3)[:, real]  # (N, rows, S)


def _divergence(p, q):
    return (_bits((p + q) / 2) - (_bits(p) + _bits(q)) / 2).mean()


def _bits(p):
    return -np.sum(p * np.log2(np.maximum(p, 1e-300)), -1)


def looks(model, tokenizer, pairs):
    """What the encoder's attention does on some pairs: the means of its layers.

    `own` is the weight on the token itself, `even` what it would be if all were alike, `apart` the
    divergence of heads, and `moved` how far the output is from that of the token's own value.
    """
    found = {"own": [], "even": [], "apart": [], "moved": []}
    for (source, _), _ in batches(tokenizer, pairs[:400]).epoch(0):
        real, mask = np.asarray(source) != 0, create_padding_mask(source)
        lengths = real.sum(-1)  # 0 for the rows that fill up a batch
        x = model.encoder.embedding(source)
        for layer in model.encoder.enc_layers:
            output, weights = layer.mha(x, x, x, mask)
            alone = layer.mha.dense(layer.mha.wv(x))
            found["own"].append(on_itself(weights.numpy(), real))
            found["even"].append((lengths > 0).sum() / lengths.sum())
            found["apart"].append(heads_apart(weights, real) if weights.shape[1] > 1 else 0)
            found["moved"].append(_size((output - alone)[real]) / _size(output[real]))
            x = layer(x, False, mask)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _size(rows):
    return np.linalg.norm(rows)


def watched(seed, change=None, **options):
    """As `trained`, and what attention does before training, `start_own` and so on, and after."""
    tokenizer, _, validation = corpus()
    models, start = [], {}

    def changed(model):
        if change is not None:
            change(model)
        model.build()
        models.append(model)
        start.update(looks(model, tokenizer, validation))

    found = trained(seed, change=changed, **options)
    end = looks(*models, tokenizer, validation)
    return {**found, **{f"start_{name}": value for name, value in start.items()}, **end}


class Same(keras.layers.Layer):
    """The projection of another layer."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def build(self, shape):
        """Nothing: the other layer has the weights."""

    def call(self, x):
        return self.other(x)


def attentions(model, to_self=True, cross=True):
    """The attention layers of the encoder and the decoder."""
    layers = [layer.mha for layer in model.encoder.enc_layers] if to_self else []
    for layer in model.decoder.dec_layers:
        layers += [layer.mha1] * to_self + [layer.mha2] * cross
    return layers


def one_for_two(first, second, **where):
    """Make the second projection, "wk" for example, the same as the first one."""

    def change(model):
        for layer in attentions(model, **where):
            setattr(layer, second, Same(getattr(layer, first)))

    return change


VARIANTS = {
    "three matrices": watched,
    "three matrices, 1 epoch": partial(watched, epochs=1),
    "Q = K": partial(watched, architecture=Architecture(share_qk=True)),  # in self-attention alone
    "K = V everywhere": partial(watched, change=one_for_two("wk", "wv")),
    "Q = V everywhere": partial(watched, change=one_for_two("wq", "wv")),
}
