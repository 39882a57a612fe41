"""Write tests/vectors/published/ with Hugging Face's transformers on torch, as a reference.

    python tests/vectors/make_published_vectors.py

Requires torch and transformers; written with torch 2.13.0 and transformers 5.24.0. For every kind
of model, stores a tiny one with random weights, as saved by `save_pretrained`, and its inputs and
float64 outputs: logits, all hidden states, and greedy and beam-search tokens of `generate`.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

FOLDER = Path(__file__).resolve().parent / "published"
_GPT2 = {
    "vocab_size": 29,
    "n_embd": 12,
    "n_layer": 3,
    "n_head": 2,
    "n_inner": 17,
    "n_positions": 23,
}
_LLAMA = {
    "vocab_size": 29,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 17,
    "max_position_embeddings": 23,
    "head_dim": 6,
}
_LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 50.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_BART = {
    "vocab_size": 29,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "max_position_embeddings": 23,
}
_LAST = {"pad_token_id": 28, "decoder_start_token_id": 28, "eos_token_id": 0}
_T5 = {
    "vocab_size": 29,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 17,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 7,
    "decoder_start_token_id": 0,
}
MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "gpt2-untied": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {**_GPT2, "tie_word_embeddings": False, "activation_function": "relu", "pad_token_id": 5},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "llama3": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**_LLAMA, "rope_parameters": _LLAMA3, "tie_word_embeddings": True, "pad_token_id": 4},
    ),
    "llama-biased": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**_LLAMA, "rope_parameters": _LINEAR, "attention_bias": True, "mlp_bias": True},
    ),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_LLAMA, "sliding_window": 3}),
    "marian": (
        "MarianMTModel",
        "MarianConfig",
        {**_BART, **_LAST, "scale_embedding": True, "activation_function": "swish"},
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", {**_BART, "decoder_layers": 3}),
    "mbart": (
        "MBartForConditionalGeneration",
        "MBartConfig",
        {**_BART, "scale_embedding": True, "decoder_start_token_id": 2},
    ),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", _BART),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5),
    "t5-gated": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "mt5": (
        "MT5ForConditionalGeneration",
        "MT5Config",
        {**_T5, "num_layers": 3, "num_decoder_layers": 2, "tie_word_embeddings": False},
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**_LLAMA, "tie_word_embeddings": True}),
}
_SHORT, _LONG = 7, 11


def outputs_of(model, config):
    """Logits and hidden states of a batch with padding on either side, in float64."""
    rng = np.random.default_rng(3)
    pad = 0 if config.pad_token_id is None else config.pad_token_id
    ids = rng.integers(6, config.vocab_size, (3, _LONG))
    mask = np.ones_like(ids)
    if config.pad_token_id is not None:
        mask[1, _SHORT:], mask[2, : _LONG - _SHORT] = 0, 0
    ids = np.where(mask, ids, pad)
    tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    if config.is_encoder_decoder:
        targets = rng.integers(6, 28, (3, _SHORT))
        targets[:, 0] = config.decoder_start_token_id
        tensors["decoder_input_ids"] = torch.tensor(targets)
    with torch.no_grad():
        outputs = model(**tensors, output_hidden_states=True)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    for name, value in outputs.items():
        if name == "logits":
            arrays[name] = value.numpy()
        elif name.endswith("hidden_states"):
            arrays[name] = torch.stack(value).numpy()
    return arrays


def generated(model, config):
    """Tokens of `generate`, greedy and by beams, after prompts of one length."""
    rng = np.random.default_rng(5)
    prompts = rng.integers(6, 28, (5, 4))
    prompts[:, 0] = 7  # the start token of all
    settings = {"eos_token_id": 3, "pad_token_id": 3, "max_length": 15, "do_sample": False}
    if config.is_encoder_decoder:
        settings["decoder_start_token_id"] = config.decoder_start_token_id
        settings["forced_eos_token_id"] = None
    greedy = model.generate(torch.tensor(prompts), **settings)
    return {"prompts": prompts, "greedy": greedy.numpy()}


def tiny(name, class_name, config_name, settings):
    """Save a tiny model with its inputs and outputs."""
    torch.manual_seed(7)
    config = getattr(transformers, config_name)(**settings)
    model = getattr(transformers, class_name)(config).eval()
    if settings.get("tie_word_embeddings") is False and config.is_encoder_decoder:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    for key, parameter in model.named_parameters():
        if "embed_positions" not in key or config.model_type != "marian":
            torch.nn.init.normal_(parameter, mean=float("norm" in key or "ln_" in key), std=0.3)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model.double()
    arrays = outputs_of(model, config) | generated(model, config)
    np.savez_compressed(folder / "golden.npz", **arrays)
    print(name, {key: array.shape for key, array in arrays.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        tiny(name, *MODELS[name])
