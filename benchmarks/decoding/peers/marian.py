"""The same weights in Hugging Face's Marian, which has the layers of the 2017 paper."""

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from benchmarks.decoding.peers.batches import batches, limit, padded


def variants(case, arrays):
    """`generate` with caches, greedy or with beam search."""
    sizes = case["model"]
    model = marian(sizes, arrays)
    sources = [torch.from_numpy(batch).long() for batch in batches(case, arrays)]

    @torch.inference_mode()
    def translate():
        for source in sources:
            ids = model.generate(
                source,
                attention_mask=(source != 0).long(),
                generation_config=GenerationConfig(
                    num_beams=case["beam"],
                    length_penalty=0.0,
                    do_sample=False,
                    # The start token counts.
                    max_length=1 + min(limit(source.shape[1]), sizes["pe_target"]),
                    decoder_start_token_id=sizes["start_id"],
                    eos_token_id=sizes["end_id"],
                    pad_token_id=0,
                ),
            )
            yield padded(ids[:, 1:].tolist(), sizes["end_id"])

    return {"Hugging Face Marian": translate}


def marian(sizes, arrays):
    """The model with the weights of a `Transformer` with shared embeddings, by name."""
    layers, heads = sizes["num_layers"], sizes["num_heads"]
    model = MarianMTModel(
        MarianConfig(
            vocab_size=sizes["input_vocab_size"],
            d_model=sizes["d_model"],
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=sizes["dff"],
            decoder_ffn_dim=sizes["dff"],
            max_position_embeddings=len(arrays["positions"]),
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=0,
            eos_token_id=sizes["end_id"],
            decoder_start_token_id=sizes["start_id"],
        )
    ).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    weights = {"model.shared.weight": arrays["encoder/embedding/embedding/embeddings"]}
    parts = {
        "self_attn": "mha",
        "self_attn_layer_norm": "layernorm1",
        "final_layer_norm": "layernorm2",
    }
    _side(weights, arrays, "encoder", layers, parts)
    parts = {
        "self_attn": "mha1",
        "self_attn_layer_norm": "layernorm1",
        "encoder_attn": "mha2",
        "encoder_attn_layer_norm": "layernorm2",
        "final_layer_norm": "layernorm3",
    }
    _side(weights, arrays, "decoder", layers, parts)
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_positions.weight"] = arrays["positions"]
        weights[f"model.{side}.embed_tokens.weight"] = weights["model.shared.weight"]
    weights["lm_head.weight"] = weights["model.shared.weight"]
    weights = {name: torch.from_numpy(array) for name, array in weights.items()}
    missing = model.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["final_logits_bias"] and not missing.unexpected_keys, missing
    return model


def _side(weights, arrays, side, layers, parts):
    for i in range(layers):
        ours, theirs = f"{side}/layer{i}", f"model.{side}.layers.{i}"
        for their, our in parts.items():
            if our.startswith("layernorm"):
                name = f"{theirs}.{their}"
                weights[f"{name}.weight"] = arrays[f"{ours}/{our}/gamma"]
                weights[f"{name}.bias"] = arrays[f"{ours}/{our}/beta"]
            else:
                names = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "out_proj": "dense"}
                for name, one in names.items():
                    _linear(weights, f"{theirs}.{their}.{name}", arrays, f"{ours}/{our}/{one}")
        _linear(weights, f"{theirs}.fc1", arrays, f"{ours}/ffn/hidden")
        _linear(weights, f"{theirs}.fc2", arrays, f"{ours}/ffn/output")


def _linear(weights, name, arrays, ours):
    weights[f"{name}.weight"] = arrays[f"{ours}/kernel"].T
    weights[f"{name}.bias"] = arrays[f"{ours}/bias"]
