"""torch: `scaled_dot_product_attention`, and the formula compiled."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def formula(q, k, v, is_causal):
    """softmax(Q K^T / sqrt(d)) V."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if is_causal:
        free = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.where(free, -1e9)
    return scores.softmax(-1) @ v


def variants(case, arrays):
    """With the kernels that torch chooses."""
    dtype = getattr(torch, case["dtype"])
    q, k, v, g = (torch.from_numpy(arrays[name]).to(dtype) for name in ("q", "k", "v", "g"))

    def timed(attend):
        def forward():
            with torch.no_grad():
                return (attend(q, k, v, is_causal=case["causal"]).float(),)

        def both():
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            output = attend(*inputs, is_causal=case["causal"])
            gradients = torch.autograd.grad(output, inputs, g)
            return [x.detach().float() for x in (output, *gradients)]

        return forward if case["task"] == "forward" else both

    return {
        "torch": timed(scaled_dot_product_attention),
        "torch, formula compiled": timed(torch.compile(formula)),
    }
