"""StableHLO programs, jax and torch on a GPU, a TPU or a CPU; without TensorFlow."""

import jax
import numpy as np
from jaxlib import xla_client


class Program:
    """A StableHLO program with a known number of outputs, compiled for a device."""

    def __init__(self, text, device, outputs):
        self.device = device
        self.outputs = outputs
        self.loaded = device.client.compile_and_load(
            text, xla_client.DeviceList((device,)), xla_client.CompileOptions()
        )

    @property
    def temporary_mib(self):
        """Memory of the program in addition to its inputs and outputs."""
        return self.loaded.get_compiled_memory_stats().temp_size_in_bytes / 2**20

    def place(self, arrays):
        """Arrays on the device."""
        return [jax.device_put(array, self.device) for array in arrays]

    def __call__(self, *arrays):
        results = self.loaded.execute_sharded(arrays)
        results = results.consume_with_handlers([lambda shards: shards[0]] * self.outputs)
        return jax.block_until_ready(results)


def peers(case, arrays, device):
    """Return functions that do the same work, by name: jax, and torch if installed."""
    functions = {}
    both = case["task"] == "both"
    q, k, v, upstream = (jax.device_put(x.swapaxes(1, 2), device) for x in arrays)
    attend = jax.nn.dot_product_attention

    def with_gradients(q, k, v, upstream):
        output, backward = jax.vjp(attend, q, k, v)
        return output, *backward(upstream)

    function = jax.jit(with_gradients if both else lambda q, k, v, upstream: attend(q, k, v))
    functions["jax"] = lambda: jax.block_until_ready(function(q, k, v, upstream))
    try:
        import torch
    except ImportError:
        return functions
    if device.platform == "gpu" and not torch.cuda.is_available():
        return functions
    place = {"device": "cuda" if device.platform == "gpu" else "cpu"}
    place["dtype"] = getattr(torch, case["dtype"])
    tensors = [torch.tensor(x.astype(np.float32), **place).requires_grad_(both) for x in arrays]

    def by_torch():
        output = torch.nn.functional.scaled_dot_product_attention(*tensors[:3])
        if both:
            torch.autograd.grad(output, tensors[:3], tensors[3])
        if device.platform == "gpu":
            torch.cuda.synchronize()

    functions["torch"] = by_torch
    return functions
