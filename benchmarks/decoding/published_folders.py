"""A published model with random weights, written by transformers.

python -m benchmarks.decoding.published_folders KIND FOLDER [tiny]
"""

import sys

import torch
import transformers

# The class, its configuration, and what replaces it in a tiny model. With weights of the usual
# standard deviation, 0.02, greedy decoding repeats one token.
SHAPES = {
    "marian": (
        "Marian",
        {
            "vocab_size": 58101,
            "pad_token_id": 58100,
            "decoder_start_token_id": 58100,
            "eos_token_id": 0,
            "forced_eos_token_id": None,
            "d_model": 512,
            "encoder_ffn_dim": 2048,
            "decoder_ffn_dim": 2048,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "activation_function": "swish",
            "scale_embedding": True,
            "init_std": 0.06,
            "max_position_embeddings": 512,
        },
        {"encoder_layers": 1, "decoder_layers": 1},
    ),
    "gpt2": ("GPT2", {"initializer_range": 0.06}, {"n_layer": 1, "n_embd": 192}),
    "qwen2": (
        "Qwen2",
        {
            "vocab_size": 151936,
            "bos_token_id": 151643,
            "eos_token_id": 151643,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "initializer_range": 0.06,
        },
        {"num_hidden_layers": 1},
    ),
}
_HEADS = {"Marian": "MarianMTModel", "GPT2": "GPT2LMHeadModel", "Qwen2": "Qwen2ForCausalLM"}


def main(kind, folder, size="full"):
    """Write the folder."""
    name, sizes, tiny = SHAPES[kind]
    sizes = sizes if size == "full" else {**sizes, **tiny}
    config = getattr(transformers, f"{name}Config")(**sizes)
    torch.manual_seed(1)
    getattr(transformers, _HEADS[name])(config).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
