"""A Transformer of this library in CTranslate2, with the same weights."""

import os
import tempfile

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
from ctranslate2.specs.common_spec import Activation

from benchmarks.decoding.peers.batches import batches, limit, padded


def variants(case, arrays):
    """Greedy decoding or beam search; large batches also split into one part for each core."""
    cores = os.cpu_count()
    kinds = {}  # name: compute type, workers
    for ending, compute_type in case.get("engine", {"": "float32"}).items():
        kinds[f"CTranslate2{ending}"] = compute_type, 1
        if case["batch"] > 1:
            kinds[f"CTranslate2{ending}, {cores} workers"] = compute_type, cores
    sources = batches(case, arrays)
    names = [[[f"t{id}" for id in row if id] for row in source] for source in sources]
    with tempfile.TemporaryDirectory() as folder:
        convert(case["model"], arrays).save(folder)
        translators = {
            name: ctranslate2.Translator(
                folder,
                device="cpu",
                compute_type=compute_type,
                inter_threads=count,
                intra_threads=cores // count,
            )
            for name, (compute_type, count) in kinds.items()
        }
    return {
        name: _translate(translator, case, names, -(-case["batch"] // kinds[name][1]))
        for name, translator in translators.items()
    }


def _translate(translator, case, names, most):
    def translate():
        for batch in names:
            results = translator.translate_batch(
                batch,
                max_batch_size=most,
                beam_size=case["beam"],
                length_penalty=0,
                min_decoding_length=0,  # the default of 1 forbids the empty translation
                max_decoding_length=limit(max(map(len, batch))),
            )
            yield padded([int(name[1:]) for name in result.hypotheses[0]] for result in results)

    return translate


def convert(sizes, arrays):
    """The specification with the weights of a `Transformer` with shared embeddings, by name."""
    parts = sizes.get("architecture") or {}
    rotary = parts.get("positions", {}).get("part") == "RotaryPositions"
    pre_norm = parts.get("residual", {}).get("part") == "PreNorm"
    kind = {
        "pre_norm": pre_norm,
        "activation": Activation.RELU,
        "rotary_dim": 0 if rotary else None,
    }
    spec = TransformerSpec(
        *(
            side(sizes["num_layers"], sizes["num_heads"], **kind)
            for side in (TransformerEncoderSpec, TransformerDecoderSpec)
        )
    )
    spec.config.layer_norm_epsilon = 1e-6
    table = arrays["encoder/embedding/embedding/embeddings"]
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        if hasattr(side, "position_encodings"):  # the encoder has some also if it rotates
            side.position_encodings.encodings = arrays["positions"] * (not rotary)
    if pre_norm:
        _norm(spec.encoder.layer_norm, arrays, "encoder/final_norm")
        _norm(spec.decoder.layer_norm, arrays, "decoder/final_norm")
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    for i, layer in enumerate(spec.encoder.layer):
        name = f"encoder/layer{i}"
        _self_attention(layer.self_attention, arrays, f"{name}/mha", f"{name}/layernorm1")
        _feed_forward(layer.ffn, arrays, name, f"{name}/layernorm2")
    for i, layer in enumerate(spec.decoder.layer):
        name = f"decoder/layer{i}"
        _self_attention(layer.self_attention, arrays, f"{name}/mha1", f"{name}/layernorm1")
        _linear(layer.attention.linear[0], arrays, f"{name}/mha2/wq")
        _linear(layer.attention.linear[1], arrays, f"{name}/mha2/wk", f"{name}/mha2/wv")
        _linear(layer.attention.linear[2], arrays, f"{name}/mha2/dense")
        _norm(layer.attention.layer_norm, arrays, f"{name}/layernorm2")
        _feed_forward(layer.ffn, arrays, name, f"{name}/layernorm3")
    names = [f"t{id}" for id in range(len(table))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = f"t{sizes['start_id']}"
    spec.config.eos_token = f"t{sizes['end_id']}"
    spec.config.unk_token = "t0"
    spec.validate()
    return spec


def _self_attention(spec, arrays, name, norm):
    _linear(spec.linear[0], arrays, *(f"{name}/{part}" for part in ("wq", "wk", "wv")))
    _linear(spec.linear[1], arrays, f"{name}/dense")
    _norm(spec.layer_norm, arrays, norm)


def _feed_forward(spec, arrays, name, norm):
    _linear(spec.linear_0, arrays, f"{name}/ffn/hidden")
    _linear(spec.linear_1, arrays, f"{name}/ffn/output")
    _norm(spec.layer_norm, arrays, norm)


def _linear(spec, arrays, *names):
    spec.weight = np.concatenate([arrays[f"{name}/kernel"].T for name in names])
    spec.bias = np.concatenate([arrays[f"{name}/bias"] for name in names])


def _norm(spec, arrays, name):
    spec.gamma, spec.beta = arrays[f"{name}/gamma"], arrays[f"{name}/beta"]
