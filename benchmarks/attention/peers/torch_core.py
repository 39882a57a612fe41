"""`torch.nn.functional.scaled_dot_product_attention`."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def variants(case, arrays):
    """With the kernel that torch chooses."""
    dtype = getattr(torch, case["dtype"])
    q, k, v, g = (torch.from_numpy(arrays[name]).to(dtype) for name in ("q", "k", "v", "g"))

    def forward():
        with torch.no_grad():
            return (scaled_dot_product_attention(q, k, v, is_causal=case["causal"]).float(),)

    def both():
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        output = scaled_dot_product_attention(*inputs, is_causal=case["causal"])
        gradients = torch.autograd.grad(output, inputs, g)
        return [x.detach().float() for x in (output, *gradients)]

    return {"torch": forward if case["task"] == "forward" else both}
