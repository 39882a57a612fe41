"""Removing heads, inner units and layers from a model.

Axes: N parts (heads or inner units) of a layer, W width of a part, D model width.
"""

import dataclasses
from numbers import Integral

import keras
import numpy as np

from tf_transformer.errors import ArgumentError, check
from tf_transformer.layers.decoder import DecoderLayer
from tf_transformer.layers.encoder import EncoderLayer
from tf_transformer.layers.feed_forwards import GatedDense
from tf_transformer.layers.positions import AlibiPositions, T5Positions
from tf_transformer.models.base_model import check_merged
from tf_transformer.models.bert.bert import PretrainedBert
from tf_transformer.models.bert.exits import BertWithExits
from tf_transformer.models.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class PrunableSite:
    """The heads of an attention layer, or the inner units of a feed-forward network."""

    before: tuple
    after: keras.layers.Dense
    count: int
    width: int = 1
    positions: object = None
    grouped: bool = False


@dataclasses.dataclass(frozen=True)
class PrunableLayer:
    """One layer of a stack."""

    attentions: dict
    networks: tuple
    layer: keras.layers.Layer


def prunable_stacks(model):
    """Find the layers of a model with their heads and inner units."""
    if isinstance(model, Transformer):
        if model.architecture is not None and model.architecture.num_groups is not None:
            got = f"num_groups={model.architecture.num_groups}"
            remedy = "Layers that share weights cannot be pruned."
            raise ArgumentError("model", "layers with weights of their own", got, remedy)
        stacks = {"encoder": model.encoder.enc_layers, "decoder": model.decoder.dec_layers}
    elif isinstance(model, PretrainedBert):
        stacks = {"encoder": getattr(model, "bert", model).encoder.groups}
    else:
        raise ArgumentError("model", "a Transformer or a BERT model", f"{model!r}")
    check(model.built, "model", "a model with weights", "one that was not built yet")
    return {name: [_layer(layer) for layer in layers] for name, layers in stacks.items()}


def attention_sites(model):
    """Find the heads of a model."""
    sites = {}
    for layers in prunable_stacks(model).values():
        for layer in layers:
            for name, attention in layer.attentions.items():
                sites.setdefault(name, []).append(attention)
    return sites


def network_sites(model):
    """Find the inner units of a model."""
    stacks = prunable_stacks(model)
    if any(len(layer.networks) != 1 for layers in stacks.values() for layer in layers):
        expected, remedy = "one feed-forward network in each layer", "Prune its heads or layers."
        raise ArgumentError("model", expected, "two (MacaronFeedForward)", remedy)
    return {name: [layer.networks[0] for layer in layers] for name, layers in stacks.items()}


def _layer(layer):
    if isinstance(layer, EncoderLayer):
        return PrunableLayer({"encoder": _attention(layer.mha)}, _networks(layer), layer)
    if isinstance(layer, DecoderLayer):
        attentions = {"decoder": _attention(layer.mha1), "cross": _attention(layer.mha2)}
        return PrunableLayer(attentions, _networks(layer), layer)
    mha = layer.attention
    before, count = (mha.query, mha.key, mha.value), mha.num_attention_heads
    grouped = mha.num_key_value_heads != count
    heads = PrunableSite(
        before, layer.attention_output, count, mha.size_per_head, mha.positions, grouped
    )
    if layer.ffn is not None:
        networks = _networks(layer)
    else:
        inner = layer.intermediate
        networks = (PrunableSite((inner,), layer.output_dense, inner.units),)
    return PrunableLayer({"encoder": heads}, networks, layer)


def _attention(mha):
    before, grouped = (mha.wq, mha.wk, mha.wv), mha.num_key_value_heads != mha.num_heads
    return PrunableSite(before, mha.dense, mha.num_heads, mha.key_dim, mha.positions, grouped)


def _networks(layer):
    found = []
    for network in (layer.ffn_before, layer.ffn):
        if network is not None:
            hidden, after = network.layers[:2]
            gated = isinstance(hidden, GatedDense)
            before = (hidden.gate, hidden.linear) if gated else (hidden,)
            found.append(PrunableSite(before, after, before[0].units))
    return tuple(found)


def pruned(model, *, heads=None, units=None, layers=None):
    """Create a smaller model of the same class, without some heads, inner units or layers.

    The kernels are cut: the results equal those of the original with the outputs of these heads and
    units multiplied by 0. `fit`, `save`, `save_pretrained` and the exporters work as usual. Michel
    et al. 2019, "Are Sixteen Heads Really Better than One?", section 3. Returns a new model, not
    compiled.

    Args:
        model: built `Transformer` or BERT model; it does not change.
        heads, units: None, or dict: "encoder", "decoder" or for heads "cross" -> {layer: numbers of
            the heads or units to remove}.
        layers: None, or dict: "encoder" or "decoder" -> numbers of the layers to remove.

    Raises:
        ValueError: If the model has adapters; if a layer, head or unit does not exist, a layer
            would lose all its heads or units, or a stack all its layers; if the heads of a layer
            share keys (grouped-query attention) or have position weights per head (T5, ALiBi); or
            if a layer to remove shares weights with others (ALBERT, T5 positions).

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(2, 8, 2, 32, 11, 13, pe_input=16, pe_target=16)
        >>> model.build()
        >>> smaller = pruned(model, heads={"cross": {0: [1]}}, layers={"encoder": [1]})
        >>> smaller.get_config()["layer_sizes"]
        {'encoder': ((2, 32),), 'decoder': ((2, 1, 32), (2, 2, 32))}
    """
    stacks = prunable_stacks(model)
    check_merged(model)
    counts = {}  # id of `site.after` -> number of remaining parts
    slices = {}  # id of a variable -> (axis, remaining indices)
    kinds = ("heads", heads, attention_sites), ("units", units, network_sites)
    for argument, choice, find in kinds:
        for site, kept in _kept_parts(argument, choice or {}, find(model) if choice else {}):
            counts[id(site.after)] = len(kept)
            places = np.reshape(np.arange(site.count * site.width), (site.count, -1))[kept].ravel()
            for dense in site.before:
                slices[id(dense.kernel)] = 1, places
                if dense.bias is not None:
                    slices[id(dense.bias)] = 0, places
            slices[id(site.after.kernel)] = 0, places
    remaining, gone = _kept_layers(model, stacks, layers or {})
    sizes = {}
    for name, some in remaining.items():
        sites = [(*layer.attentions.values(), layer.networks[0]) for layer in some]
        sizes[name] = [[counts.get(id(s.after), s.count) for s in each] for each in sites]
    smaller = _rebuilt(model, sizes)
    smaller.build()
    weights = [weight for weight in model.weights if id(weight) not in gone]
    for weight, whole in zip(smaller.weights, weights, strict=True):
        axis, kept = slices.get(id(whole), (0, None))
        weight.assign(whole if kept is None else np.take(whole, kept, axis))
    return smaller


def prune_heads(model, heads):
    """Create a smaller model without some heads; arguments, result and errors: see `pruned`.

    Example:
        >>> from tf_transformer.bert import Bert, BertConfig
        >>> model = Bert(BertConfig(13, 8, 2, 2, 16))
        >>> model.build()
        >>> prune_heads(model, {"encoder": {1: [0]}}).config.layer_sizes
        ((2, 16), (1, 16))
    """
    return pruned(model, heads=heads)


def _kept_parts(argument, choice, sites):
    """Yield the sites of a choice, with the numbers of their remaining parts."""
    for name, layers in choice.items():
        _check_name(argument, name, sites)
        for n, numbers in layers.items():
            place, count = f"{argument}[{name!r}]", len(sites[name])
            check(n in range(count), place, f"layers from 0 to {count - 1}", f"{n!r}")
            if not len(numbers):
                continue
            site = sites[name][n]
            if site.grouped:
                expected, got = "heads with keys of their own", "grouped-query attention"
                raise ArgumentError(argument, expected, got)
            if isinstance(site.positions, AlibiPositions | T5Positions):
                got = type(site.positions).__name__
                raise ArgumentError(argument, "positions without numbers for each head", got)
            gone = _numbers(f"{place}[{n}]", numbers, site.count)
            yield site, [part for part in range(site.count) if part not in gone]


def _kept_layers(model, stacks, choice):
    """Return the remaining layers of each stack, and the ids of the others' variables."""
    remaining, lost = dict(stacks), set()
    for name, numbers in choice.items():
        _check_name("layers", name, stacks)
        layers = stacks[name]
        gone = _numbers(f"layers[{name!r}]", numbers, len(layers))
        remaining[name] = [layer for n, layer in enumerate(layers) if n not in gone]
        weights = [layer.layer.weights for layer in layers]
        if isinstance(model, BertWithExits):
            weights = [some + model.classifiers[n].weights for n, some in enumerate(weights)]
        ids = [{id(weight) for weight in some} for some in weights]
        lost |= {i for n in gone for i in ids[n]}
        if any(lost & some for n, some in enumerate(ids) if n not in gone):
            expected = "layers with weights of their own"
            raise ArgumentError(f"layers[{name!r}]", expected, "shared ones")
    return remaining, lost


def _check_name(argument, name, sites):
    check(name in sites, argument, f"keys among {', '.join(sites)}", f"{name!r}")


def _numbers(argument, numbers, count):
    is_known = all(isinstance(n, Integral) and 0 <= n < count for n in numbers)
    check(is_known, argument, f"numbers from 0 to {count - 1}", f"{numbers!r}")
    gone = {int(n) for n in numbers}
    check(len(gone) != count, argument, "at least one to remain", f"all {count} of them")
    return gone


def _rebuilt(model, sizes):
    config = model.get_config()
    if isinstance(model, Transformer):
        numbers = tuple(len(layers) for layers in sizes.values())
        config.update(num_layers=numbers, layer_sizes=sizes)
        return type(model).from_config(config)
    bert = {**config["config"], "layer_sizes": sizes["encoder"]}
    if bert["num_hidden_groups"] is None:
        bert["num_hidden_layers"] = len(sizes["encoder"])
    elif len(sizes["encoder"]) != model.config.num_groups:
        raise ArgumentError("layers", "layers with weights of their own", "an ALBERT")
    return type(model).from_config({**config, "config": bert})
