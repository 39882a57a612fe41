"""BERT with any architecture in float64, from the equations; see reference_architecture.py.

Axes: B batch, T length.
"""

import numpy as np
import reference_numpy as ref
from reference_architecture import Reference

# The names of BERT's variables, and of an encoder layer's.
NAMES = {
    "encoder/layer_": "encoder/layer",
    "attention/self/query": "mha/wq",
    "attention/self/key": "mha/wk",
    "attention/self/value": "mha/wv",
    "attention/self/positions": "mha/positions",
    "attention/output": "mha/dense",
    "ffn_before_norm": "layernorm0",
    "attention_norm": "layernorm1",
    "ffn_norm": "layernorm2",
}


class BertReference(Reference):
    """One model: its weights by `variables_by_name`, its choices and its `BertConfig`."""

    def __init__(self, weights, choice, config, training=False):
        renamed = {}
        for path, values in weights.items():
            for bert, ours in NAMES.items():
                path = path.replace(bert, ours)
            renamed[path] = values
        if choice["positions"]["part"] == "T5Positions":
            table = renamed["bert/encoder/layer0/mha/positions/table"]
            for n in range(1, config.num_hidden_layers):
                renamed[f"bert/encoder/layer{n}/mha/positions/table"] = table
        super().__init__(
            renamed, choice, config.num_attention_heads, config.num_hidden_layers, training
        )
        self.config = config

    def embeddings(self, ids, types, tokens):
        scope = "bert/embeddings"
        x = self.weights[f"{scope}/word_embeddings"][ids]
        part = self.choice["positions"]["part"]
        if part == "SinusoidalPositions":
            x = x + ref.positional_encoding(*x.shape[1:])
        elif part == "LearnedPositions":
            x = x + self.weights[f"{scope}/position_embeddings/table"][: ids.shape[1]]
        x = x + self.weights[f"{scope}/token_type_embeddings"][types]
        return self.norm(f"{scope}/norm", x, tokens)

    def hidden_states(self, ids, types, mask):
        """`mask` is (B, T), (B, T, T) or (B, 1, T, T), 1 = may attend; (B, T, D) of each layer."""
        blocked = 1 - mask.reshape((len(mask), -1, mask.shape[-1]))
        tokens = (blocked == 0).any(1)
        x = self.embeddings(ids, types, tokens)
        if self.config.embedding_size:
            x = self.linear("bert/encoder/embedding_hidden_mapping_in", x)
        states, groups = [x], self.config.num_hidden_groups or self.num_layers

        for n in range(self.num_layers):
            here = f"bert/encoder/layer{n * groups // self.num_layers}"

            def attend(y, path=f"{here}/mha"):
                return self.attention(path, y, y, blocked, True)

            states.append(self.layer(here, states[-1], [attend], tokens))
        if self.choice["residual"]["part"] == "PreNorm":
            states[-1] = self.norm("bert/encoder/final_norm", states[-1], tokens)
        return states

    def outputs(self, inputs):
        """Hidden states and the pooler's output, for the inputs of a model."""
        states = self.hidden_states(*inputs.values())
        return [*states, np.tanh(self.linear("bert/pooler/dense", states[-1][:, 0]))]
