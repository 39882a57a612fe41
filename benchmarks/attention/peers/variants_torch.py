"""torch's `scaled_dot_product_attention` with a bias, with grouped heads, with a band as mask."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def options(case, heads, length):
    """The arguments of a case."""
    distances = torch.arange(length) - torch.arange(length)[:, None]
    if case["variant"] == "grouped":
        return {"enable_gqa": True}
    if case["variant"] == "window":
        return {"attn_mask": distances.abs() <= case["r"]}
    power = 2 ** (len(f"{heads:b}") - 1)  # the largest power of two in the number of heads
    slopes = [2 ** (-8 * n / power) for n in range(1, power + 1)]
    slopes += [2 ** (-4 * n / power) for n in range(1, 2 * (heads - power) + 1, 2)]
    return {"attn_mask": -distances.abs() * torch.tensor(slopes)[:, None, None]}


def variants(case, arrays):
    """With the kernel that torch chooses."""
    q, k, v, g = (torch.from_numpy(arrays[name]) for name in ("q", "k", "v", "g"))
    chosen = options(case, *q.shape[1:3])

    def forward():
        with torch.no_grad():
            return (scaled_dot_product_attention(q, k, v, **chosen),)

    def both():
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        output = scaled_dot_product_attention(*inputs, **chosen)
        gradients = torch.autograd.grad(output, inputs, g)
        return [x.detach() for x in (output, *gradients)]

    return {"torch": forward if case["task"] == "forward" else both}
