"""Removing heads, inner units and layers from a model.

Axes: N parts (heads or inner units) of a layer, W width of a part, D model width.
"""

import dataclasses

import keras
import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.decoder import DecoderLayer
from tf_transformer.layers.encoder import EncoderLayer
from tf_transformer.layers.feed_forwards import GatedDense
from tf_transformer.layers.positions import AlibiPositions, T5Positions
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
            raise ArgumentError(
                "model",
                "layers with weights of their own",
                f"num_groups={model.architecture.num_groups}",
                "Layers that share weights cannot be pruned.",
            )
        stacks = {"encoder": model.encoder.enc_layers, "decoder": model.decoder.dec_layers}
    elif isinstance(model, PretrainedBert):
        stacks = {"encoder": getattr(model, "bert", model).encoder.groups}
    else:
        raise ArgumentError("model", "a Transformer or a BERT model", f"{model!r}")
    if not model.built:
        raise ArgumentError("model", "a model with weights", "one that was not built yet")
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
        raise ArgumentError(
            "model",
            "one feed-forward network in each layer",
            "two (MacaronFeedForward)",
            "Its heads and layers can be pruned.",
        )
    return {name: [layer.networks[0] for layer in layers] for name, layers in stacks.items()}


def _layer(layer):
    if isinstance(layer, EncoderLayer):
        return PrunableLayer({"encoder": _attention(layer.mha)}, _networks(layer), layer)
    if isinstance(layer, DecoderLayer):
        attentions = {"decoder": _attention(layer.mha1), "cross": _attention(layer.mha2)}
        return PrunableLayer(attentions, _networks(layer), layer)
    heads = layer.attention
    attention = PrunableSite(
        (heads.query, heads.key, heads.value),
        layer.attention_output,
        heads.num_attention_heads,
        heads.size_per_head,
        heads.positions,
        heads.num_key_value_heads != heads.num_attention_heads,
    )
    if layer.ffn is not None:
        networks = _networks(layer)
    else:
        inner = layer.intermediate
        networks = (PrunableSite((inner,), layer.output_dense, inner.units),)
    return PrunableLayer({"encoder": attention}, networks, layer)


def _attention(mha):
    return PrunableSite(
        (mha.wq, mha.wk, mha.wv),
        mha.dense,
        mha.num_heads,
        mha.key_dim,
        mha.positions,
        mha.num_key_value_heads != mha.num_heads,
    )


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

    The kernels are cut, so the model is smaller and faster; its results equal those of the original
    with the outputs of these heads and units multiplied by 0. `fit`, `save`, `save_pretrained` and
    the exporters work as usual. Michel et al. 2019, "Are Sixteen Heads Really Better than One?",
    section 3.

    Args:
        model: built `Transformer` or BERT model; it does not change.
        heads: None, or dict: "encoder", "decoder" (self-attention) or "cross" -> {layer: numbers
            of the heads to remove}.
        units: None, or dict: "encoder" or "decoder" -> {layer: numbers of the units to remove}.
        layers: None, or dict: "encoder" or "decoder" -> numbers of the layers to remove.

    Returns:
        A new model, not compiled.

    Raises:
        ValueError: If a layer, head or unit does not exist, a layer would lose all its heads or
            units, or a stack all its layers; if the heads of a layer share keys (grouped-query
            attention) or have position weights per head (T5, ALiBi); or if a layer to remove shares
            weights with others (ALBERT, T5 positions).

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(2, 8, 2, 32, 11, 13, pe_input=16, pe_target=16)
        >>> model.build()
        >>> smaller = pruned(model, heads={"cross": {0: [1]}}, layers={"encoder": [1]})
        >>> smaller.get_config()["layer_sizes"]
        {'encoder': ((2, 32),), 'decoder': ((2, 1, 32), (2, 2, 32))}
    """
    cuts = _Cuts(model)
    cuts.remove_heads(heads or {})
    cuts.remove_units(units or {})
    cuts.remove_layers(layers or {})
    smaller = _rebuilt(model, cuts.sizes())
    smaller.build()
    for weight, value in zip(smaller.weights, cuts.values(), strict=True):
        weight.assign(value)
    return smaller


def prune_heads(model, heads):
    """Create a smaller model without some heads; see `pruned`.

    Args:
        model: built `Transformer` or BERT model.
        heads: dict, "encoder", "decoder" or "cross" -> {layer: numbers of the heads to remove}.

    Returns:
        A new model, not compiled.

    Raises:
        ValueError: See `pruned`.

    Example:
        >>> from tf_transformer.bert import Bert, BertConfig
        >>> model = Bert(BertConfig(13, 8, 2, 2, 16))
        >>> model.build()
        >>> prune_heads(model, {"encoder": {1: [0]}}).config.layer_sizes
        ((2, 16), (1, 16))
    """
    return pruned(model, heads=heads)


class _Cuts:
    """The parts of each layer, kernel and bias to keep."""

    def __init__(self, model):
        self.model, self.stacks = model, prunable_stacks(model)
        self.kept = {name: list(range(len(layers))) for name, layers in self.stacks.items()}
        self.counts = {}  # id of `site.after` -> number of remaining parts
        self.slices = {}  # id of a variable -> (axis, indices)
        self.gone = set()  # ids of variables

    def remove_heads(self, heads):
        sites = attention_sites(self.model)
        for name, n, numbers, site in _chosen("heads", heads, sites):
            if site.grouped:
                raise ArgumentError(
                    "heads", "heads with keys of their own", "grouped-query attention"
                )
            if isinstance(site.positions, AlibiPositions | T5Positions):
                raise ArgumentError(
                    "heads",
                    "positions without numbers for each head",
                    type(site.positions).__name__,
                )
            self._remove(f"heads[{name!r}][{n}]", site, numbers)

    def remove_units(self, units):
        sites = network_sites(self.model) if units else {}
        for name, n, numbers, site in _chosen("units", units, sites):
            self._remove(f"units[{name!r}][{n}]", site, numbers)

    def remove_layers(self, layers):
        for name, numbers in layers.items():
            _check_name("layers", name, self.stacks)
            gone = _numbers(f"layers[{name!r}]", numbers, len(self.stacks[name]))
            self.kept[name] = [n for n in self.kept[name] if n not in gone]
            weights = [layer.layer.weights for layer in self.stacks[name]]
            if isinstance(self.model, BertWithExits):
                exits = self.model.classifiers
                weights = [some + exits[n].weights for n, some in enumerate(weights)]
            kept = {id(w) for n in self.kept[name] for w in weights[n]}
            self.gone |= {id(w) for n in gone for w in weights[n]}
            if self.gone & kept:
                raise ArgumentError(
                    f"layers[{name!r}]", "layers with weights of their own", "shared ones"
                )

    def _remove(self, argument, site, numbers):
        gone = _numbers(argument, numbers, site.count)
        kept = [n for n in range(site.count) if n not in gone]
        places = np.reshape(np.arange(site.count * site.width), (site.count, -1))[kept].ravel()
        self.counts[id(site.after)] = len(kept)
        for dense in site.before:
            self.slices[id(dense.kernel)] = 1, places
            if dense.bias is not None:
                self.slices[id(dense.bias)] = 0, places
        self.slices[id(site.after.kernel)] = 0, places

    def sizes(self):
        """Return the sizes of the remaining layers of each stack."""
        left = {}
        for name, layers in self.stacks.items():
            left[name] = []
            for n in self.kept[name]:
                layer = layers[n]
                sites = (*layer.attentions.values(), layer.networks[0])
                left[name].append([self.counts.get(id(s.after), s.count) for s in sites])
        return left

    def values(self):
        """Yield the remaining part of each variable of the model."""
        for weight in self.model.weights:
            if id(weight) not in self.gone:
                axis, kept = self.slices.get(id(weight), (0, None))
                yield weight if kept is None else np.take(weight, kept, axis)


def _chosen(argument, choice, sites):
    """Yield `(name, layer, numbers, site)` for each layer of a choice."""
    for name, layers in choice.items():
        _check_name(argument, name, sites)
        for n, numbers in layers.items():
            if n not in range(len(sites[name])):
                raise ArgumentError(
                    f"{argument}[{name!r}]", f"layers from 0 to {len(sites[name]) - 1}", f"{n!r}"
                )
            if len(numbers):
                yield name, n, numbers, sites[name][n]


def _check_name(argument, name, sites):
    if name not in sites:
        raise ArgumentError(argument, f"keys among {', '.join(sites)}", f"{name!r}")


def _numbers(argument, numbers, count):
    gone = {int(n) for n in numbers}
    if not gone <= set(range(count)):
        raise ArgumentError(argument, f"numbers from 0 to {count - 1}", f"{numbers!r}")
    if len(gone) == count:
        raise ArgumentError(argument, "at least one to remain", f"all {count} of them")
    return gone


def _rebuilt(model, sizes):
    """Create a model of the same class with these sizes."""
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
