"""The same weights in keras-hub's layers, decoded by its samplers, as a graph and with XLA."""

import keras_hub
import tensorflow as tf
from keras import ops

from benchmarks.decoding.peers.batches import batches, in_bucket, limit, padded
from benchmarks.training.peers.hub import model as hub_model


def variants(case, arrays):
    """A sampler's loop in a `tf.function`, one program for each shape."""
    sizes = case["model"]
    names = {"layers": "num_layers", "width": "d_model", "heads": "num_heads", "dff": "dff"}
    names["vocab"] = "input_vocab_size"
    made = hub_model({ours: sizes[name] for ours, name in names.items()}, 0.0)
    _load(made, arrays)
    decoder = Decoder(made, sizes["end_id"], case["beam"])
    sources = [(in_bucket(batch, case["batch"]), len(batch)) for batch in batches(case, arrays)]

    def variant(jit_compile):
        compiled = tf.function(decoder.decode, jit_compile=jit_compile, autograph=False)

        def translate():
            for source, rows in sources:
                steps = min(limit(source.shape[1]), sizes["pe_target"] - 1)
                prompt = tf.pad(tf.fill((len(source), 1), sizes["start_id"]), ((0, 0), (0, steps)))
                ids = compiled(tf.constant(source), prompt).numpy()
                yield padded(ids[:rows, 1:].tolist(), sizes["end_id"])

        return translate

    return {"keras-hub": variant(False), "keras-hub, XLA": variant(True)}


class Decoder:
    """Greedy decoding or beam search with keras-hub's samplers and caches."""

    def __init__(self, made, end_id, beam=1):
        samplers = keras_hub.samplers
        self.made, self.beam, self.end_id = made, beam, end_id
        self.sampler = samplers.GreedySampler() if beam == 1 else samplers.BeamSampler(beam)
        self.positions = keras_hub.layers.SinePositionEncoding()

    def decode(self, source, prompt):
        """The prompt (B, L), start tokens and room, with the tokens that follow."""
        made, memory = self.made, self.made.encode(source)
        (batch, length), heads = prompt.shape, made.sizes["heads"]
        shape = (batch, 2, length, heads, made.sizes["width"] // heads)
        caches = []
        for layer in made.decoders:
            own = ops.zeros(shape)
            cross = ops.zeros((*shape[:2], memory.shape[1], *shape[3:]))
            _, _, cross = layer(
                memory[:, :1],
                memory,
                self_attention_cache=own,
                self_attention_cache_update_index=0,
                cross_attention_cache=cross,
                cross_attention_cache_update_index=0,
            )
            caches.append((own, cross))
        # The sampler repeats the caches for each beam, but not these two.
        memory = ops.repeat(memory, self.beam, axis=0)
        keep = ops.repeat(source != 0, self.beam, axis=0)

        def following(prompt, caches, index):
            logits, caches = self._step(prompt, index - 1, memory, keep, caches)
            return logits, None, caches

        return self.sampler(following, prompt, cache=caches, index=1, stop_token_ids=[self.end_id])

    def _step(self, prompt, index, memory, keep, caches):
        """Logits for the token after `index`, and the caches with it."""
        made = self.made
        x = made.table(ops.slice(prompt, (0, index), (prompt.shape[0], 1)))
        x = x * made.sizes["width"] ** 0.5
        y = x + self.positions(x, start_index=index)
        filled = []
        for layer, (own, cross) in zip(made.decoders, caches, strict=True):
            y, own, cross = layer(
                y,
                memory,
                encoder_padding_mask=keep,
                self_attention_cache=own,
                self_attention_cache_update_index=index,
                cross_attention_cache=cross,
            )
            filled.append((own, cross))
        return made.table(y, reverse=True)[:, 0], filled


def _load(made, arrays):
    made.table.embeddings.assign(arrays["encoder/embedding/embedding/embeddings"])
    for i, layer in enumerate(made.encoders):
        name = f"encoder/layer{i}"
        _attention(layer._self_attention_layer, arrays, f"{name}/mha")
        _norm(layer._self_attention_layer_norm, arrays, f"{name}/layernorm1")
        _feed_forward(layer, arrays, name, "layernorm2")
    for i, layer in enumerate(made.decoders):
        name = f"decoder/layer{i}"
        _attention(layer._self_attention_layer, arrays, f"{name}/mha1")
        _norm(layer._self_attention_layer_norm, arrays, f"{name}/layernorm1")
        _attention(layer._cross_attention_layer, arrays, f"{name}/mha2")
        _norm(layer._cross_attention_layer_norm, arrays, f"{name}/layernorm2")
        _feed_forward(layer, arrays, name, "layernorm3")


def _attention(layer, arrays, name):
    homes = {"wq": layer._query_dense, "wk": layer._key_dense, "wv": layer._value_dense}
    for part, home in {**homes, "dense": layer._output_dense}.items():
        _dense(home, arrays, f"{name}/{part}")


def _feed_forward(layer, arrays, name, norm):
    _dense(layer._feedforward_intermediate_dense, arrays, f"{name}/ffn/hidden")
    _dense(layer._feedforward_output_dense, arrays, f"{name}/ffn/output")
    _norm(layer._feedforward_layer_norm, arrays, f"{name}/{norm}")


def _dense(home, arrays, name):
    home.kernel.assign(arrays[f"{name}/kernel"].reshape(home.kernel.shape))
    home.bias.assign(arrays[f"{name}/bias"].reshape(home.bias.shape))


def _norm(home, arrays, name):
    home.gamma.assign(arrays[f"{name}/gamma"])
    home.beta.assign(arrays[f"{name}/beta"])
