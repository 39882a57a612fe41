"""Where the heads and the inner units of a model are."""

import dataclasses

import keras

from tf_transformer.compression.prunable_site import PrunableSite
from tf_transformer.errors import ArgumentError
from tf_transformer.layers.decoder import DecoderLayer
from tf_transformer.layers.encoder import EncoderLayer
from tf_transformer.layers.feed_forwards import GatedDense
from tf_transformer.models.bert.pretrained_bert import PretrainedBert
from tf_transformer.models.transformer import Transformer


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
    if hasattr(layer, "ffn"):
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
