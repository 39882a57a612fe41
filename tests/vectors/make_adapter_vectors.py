"""Write tests/vectors/adapters/ with Hugging Face's peft on torch, as a reference.

    python tests/vectors/make_adapter_vectors.py

Requires torch, transformers and peft; written with torch 2.13.0, transformers 5.24.0 and peft
0.21.2. For several of the models in published/, stores random adapters (LoRA), as saved by
`save_pretrained`, and the float64 logits of the model with them for the inputs in published/.
"""

import shutil
import sys

import numpy as np
import torch
import transformers
from make_published_vectors import FOLDER as PUBLISHED
from make_published_vectors import MODELS
from peft import LoraConfig, get_peft_model

FOLDER = PUBLISHED.with_name("adapters")
# The settings of an adapter, whose name begins with that of its model.
ADAPTERS = {
    "gpt2-attention": {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn"]},
    "gpt2-all": {"r": 3, "target_modules": "all-linear", "fan_in_fan_out": True},
    "llama-rslora": {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["o_proj"]},
    "llama-head": {"r": 2, "target_modules": ["lm_head", "q_proj"]},
    "qwen2-patterns": {
        "r": 2,
        "lora_alpha": 7,
        "target_modules": "all-linear",
        "rank_pattern": {"k_proj": 1, "layers.1.mlp.up_proj": 3},
        "alpha_pattern": {"self_attn.k_proj": 2, "^model.layers.2.mlp.down_proj": 1},
    },
    "marian-one-layer": {
        "r": 2,
        "target_modules": ["q_proj", "v_proj", "fc1"],
        "layers_to_transform": [1],
        "layers_pattern": "layers",
        "lora_dropout": 0.1,
    },
    "t5-attention": {"r": 2, "lora_alpha": 5, "target_modules": ["q", "v"]},
    "t5-gated-all": {"r": 2, "target_modules": "all-linear", "init_lora_weights": "gaussian"},
}


def tiny(name, settings):
    """Save random adapters and the logits of their model with them."""
    torch.manual_seed(11)
    base = max((model for model in MODELS if name.startswith(model)), key=len)
    class_name, *_ = MODELS[base]
    model = getattr(transformers, class_name).from_pretrained(PUBLISHED / base)
    model = get_peft_model(model, LoraConfig(**settings)).eval()
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(parameter, std=0.2)
    model.peft_config["default"].base_model_name_or_path = base
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    # Without the embeddings, which are copied if the layer of the logits has an adapter.
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink()
    given = np.load(PUBLISHED / base / "golden.npz")
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    inputs = {key: torch.tensor(given[key]) for key in names if key in given}
    with torch.no_grad():
        plain = torch.tensor(given["logits"])
        logits = model.double()(**inputs).logits
    assert (logits - plain).abs().max() > 0.1
    np.savez_compressed(folder / "golden.npz", logits=logits.numpy())
    print(name, sum("lora_A" in key for key, _ in model.named_parameters()), "adapters")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or ADAPTERS:
        tiny(name, ADAPTERS[name])
