"""Float64 Transformers with any architecture, from their equations.

Axes: B batch, T target length, S source length, N heads, G heads of keys and values, H head width.
Weights are a dict of arrays by path, such as "encoder/layer0/mha/wq/kernel"; a choice is what
`Architecture.to_dict` returns.
"""

import math

import numpy as np
import reference_numpy as ref
import reference_positions as positions

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))),
    "gelu_new": lambda x: (
        0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}


class Reference:
    """One model: its weights, its choices, and the numbers of heads and layers."""

    def __init__(self, weights, choice, num_heads, num_layers, training=False):
        self.weights = {path: np.asarray(w, np.float64) for path, w in weights.items()}
        self.choice, self.training = choice, training
        self.num_heads, self.num_layers = num_heads, num_layers

    def linear(self, path, x):
        return x @ self.weights[f"{path}/kernel"] + self.weights[f"{path}/bias"]

    def norm(self, path, x, tokens):
        part, gamma = self.choice["norm"], self.weights[f"{path}/gamma"]
        if part["part"] == "RMSNorm":
            return gamma * x / np.sqrt(np.mean(x**2, -1, keepdims=True) + part["epsilon"])
        if part["part"] == "LayerNorm":
            mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        elif self.training:
            every = np.ones_like(tokens) if part["part"] == "NaiveBatchNorm" else tokens
            mean, variance = x[every].mean(0), x[every].var(0)
        else:
            mean, variance = (
                self.weights[f"{path}/{x}"] for x in ("moving_mean", "moving_variance")
            )
        beta = self.weights[f"{path}/beta"]
        return gamma * (x - mean) / np.sqrt(variance + part["epsilon"]) + beta

    def feed_forward(self, path, x):
        part = self.choice["feed_forward"]
        f = ACTIVATIONS[part["activation"]]
        if part["part"] == "GatedFeedForward":
            inner = f(self.linear(f"{path}/hidden/gate", x))
            inner = inner * self.linear(f"{path}/hidden/linear", x)
        else:
            inner = f(self.linear(f"{path}/hidden", x))
        output = self.linear(f"{path}/output", inner)
        return output / 2 if part["part"] == "MacaronFeedForward" else output

    def attention(self, path, x, memory, blocked, to_self):
        q = self.linear(f"{path}/wq", x)
        shared = to_self and self.choice["share_qk"]
        k = self.linear(f"{path}/wq" if shared else f"{path}/wk", memory)
        v = self.linear(f"{path}/wv", memory)
        width = q.shape[-1] // self.num_heads
        heads = []
        for n in range(self.num_heads):
            group = n * (k.shape[-1] // width) // self.num_heads
            mine = slice(n * width, (n + 1) * width)
            theirs = slice(group * width, (group + 1) * width)
            here = self.placed(q[..., mine], to_self)
            there = self.placed(k[..., theirs], to_self)
            scores = here @ there.transpose(0, 2, 1) / math.sqrt(width)
            more, values = self.relative(path, n, here, there, to_self)
            scores = scores + more
            outside = np.zeros(scores.shape, bool)
            if to_self and self.choice["window"]:
                t, s = np.indices(scores.shape[1:])
                outside = outside | (np.abs(t - s) > self.choice["window"])
            scores = np.where(outside | (blocked > 0), -1e9, scores)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights = weights / weights.sum(-1, keepdims=True)
            heads.append(weights @ v[..., theirs] + np.einsum("bts,tsh->bth", weights, values))
        return self.linear(f"{path}/dense", np.concatenate(heads, -1))

    def placed(self, heads, to_self):
        settings = dict(self.choice["positions"])
        if settings.pop("part") != "RotaryPositions" or not to_self:
            return heads
        return positions.rotary(heads, **settings)

    def relative(self, path, n, q, k, to_self):
        """What head n adds to the scores, and the vectors (T, S, H) that it adds to the values."""
        part, sizes = self.choice["positions"], (q.shape[1], k.shape[1])
        nothing = np.zeros((*sizes, q.shape[-1]))
        if not to_self:
            return 0.0, nothing
        if part["part"] == "AlibiPositions":
            return positions.alibi_bias(self.num_heads, *sizes)[n], nothing
        if part["part"] == "T5Positions":
            table = self.weights[f"{path}/positions/table"]
            return positions.t5_bias(table, *sizes, part["max_distance"], False)[n], nothing
        if part["part"] == "ShawPositions":
            tables = (self.weights[f"{path}/positions/{name}"] for name in ("keys", "values"))
            keys, values = positions.shaw_terms(*tables, *sizes)
            return np.einsum("bth,tsh->bts", q, keys) / math.sqrt(q.shape[-1]), values
        return 0.0, nothing

    def join(self, path, number, x, sublayer, tokens):
        def norm(y):
            return self.norm(f"{path}/layernorm{number}", y, tokens)

        way = self.choice["residual"]["part"]
        if way == "PreNorm":
            return x + sublayer(norm(x))
        return norm(sublayer(x) + (0.0 if way == "NoResidual" else x))

    def layer(self, path, x, attentions, tokens):
        if self.choice["feed_forward"]["part"] == "MacaronFeedForward":
            x = self.join(path, 0, x, lambda y: self.feed_forward(f"{path}/ffn_before", y), tokens)
        for number, attend in enumerate(attentions, 1):
            x = self.join(path, number, x, attend, tokens)
        number = len(attentions) + 1
        return self.join(path, number, x, lambda y: self.feed_forward(f"{path}/ffn", y), tokens)

    def embed(self, path, ids):
        table = self.weights[f"{path}/embedding/embeddings"]
        x = table[ids] * math.sqrt(table.shape[1])
        if self.choice["positions"]["part"] == "NoPositions":
            return x
        return x + ref.positional_encoding(ids.shape[1], table.shape[1])

    def stack(self, path, x, attentions_of, tokens):
        for number in range(self.num_layers):
            here = f"{path}/layer{number}"
            x = self.layer(here, x, attentions_of(here), tokens)
        if self.choice["residual"]["part"] == "PreNorm":
            return self.norm(f"{path}/final_norm", x, tokens)
        return x

    def encoder(self, ids, path="encoder", causal=False):
        """(B, S) -> (B, S, D); with `causal`, the stack of a decoder-only model."""
        blocked = ref.padding_mask(ids)[:, 0]
        if causal:
            blocked = np.maximum(blocked, ref.look_ahead_mask(ids.shape[1]))

        def attentions(here):
            return [lambda y: self.attention(f"{here}/mha", y, y, blocked, True)]

        return self.stack(path, self.embed(f"{path}/embedding", ids), attentions, ids != 0)

    def transformer(self, inp, tar):
        """(B, S) and (B, T) -> logits (B, T, V)."""
        memory = self.encoder(inp)
        padding = ref.padding_mask(inp)[:, 0]
        blocked = np.maximum(ref.padding_mask(tar)[:, 0], ref.look_ahead_mask(tar.shape[1]))

        def attentions(here):
            return [
                lambda y: self.attention(f"{here}/mha1", y, y, blocked, True),
                lambda y: self.attention(f"{here}/mha2", y, memory, padding, False),
            ]

        embedded = self.embed("decoder/embedding", tar)
        return self.linear("final_layer", self.stack("decoder", embedded, attentions, tar != 0))


def weights_of(model):
    """The weights of a model by path, without the model's own name."""
    return {w.path.removeprefix(f"{model.path}/"): w.numpy() for w in model.weights}
