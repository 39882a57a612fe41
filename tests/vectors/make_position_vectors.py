"""Make positions.npz from transformers, whose code the published models use.

    pip install torch transformers numpy
    python make_position_vectors.py

T5's buckets (T5Attention), the slopes of ALiBi (BLOOM), and rotary queries with both pairings:
halves (LLaMA) and interleaved (GPT-J).
"""

from pathlib import Path

import numpy as np
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama
from transformers.models.t5.modeling_t5 import T5Attention

LENGTH, WIDTH = 7, 8


def main():
    """Write the file."""
    arrays = {}
    distances = torch.arange(-300, 301)
    for buckets, longest in ((32, 128), (8, 16), (16, 40)):
        for causal in (False, True):
            values = T5Attention._relative_position_bucket(distances, not causal, buckets, longest)
            arrays[f"t5_{buckets}_{longest}_{'causal' if causal else 'both'}"] = values.numpy()
    for heads in (2, 3, 8, 12):
        alibi = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32)  # (heads, 1, 3)
        arrays[f"alibi_{heads}"] = (alibi[:, 0, 2] - alibi[:, 0, 1]).numpy()
    x = torch.from_numpy(
        np.random.default_rng(0).standard_normal((1, 2, LENGTH, WIDTH), np.float32)
    )
    inverse = 1 / 10000 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    angles = torch.arange(LENGTH, dtype=torch.float64)[:, None] * inverse
    twice = torch.cat([angles, angles], -1)[None].float()
    arrays["x"], arrays["halves"] = x.numpy(), llama(x, x, twice.cos(), twice.sin())[0].numpy()
    sine, cosine = create_sinusoidal_positions(LENGTH, WIDTH).chunk(2, dim=-1)
    turned = gptj(x.transpose(1, 2), sine[None], cosine[None]).transpose(1, 2)
    arrays["interleaved"] = turned.numpy()
    np.savez_compressed(Path(__file__).with_name("positions.npz"), **arrays)


if __name__ == "__main__":
    main()
