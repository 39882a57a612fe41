"""Attention in JAX, compiled: the formula, and `jax.nn.dot_product_attention`."""

import jax
import jax.numpy as jnp


def formula(q, k, v, causal):
    """softmax(Q K^T / sqrt(d)) V."""
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(jnp.tri(q.shape[-2], dtype=bool), scores, -1e9)
    return jax.nn.softmax(scores) @ v


def own(q, k, v, causal):
    """JAX takes (batch, length, heads, width), hence the transpositions."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal).swapaxes(1, 2)


def variants(case, arrays):
    """Both functions, forward or forward and backward."""
    q, k, v, g = (jnp.asarray(arrays[name], case["dtype"]) for name in ("q", "k", "v", "g"))

    def timed(attend):
        @jax.jit
        def run(q, k, v, g):
            def core(*inputs):
                return attend(*inputs, case["causal"])

            if case["task"] == "forward":
                results = [core(q, k, v)]
            else:
                output, backward = jax.vjp(core, q, k, v)
                results = [output, *backward(g)]
            return [x.astype(jnp.float32) for x in results]

        return lambda: jax.block_until_ready(run(q, k, v, g))

    return {"JAX, formula": timed(formula), "JAX, its own": timed(own)}
