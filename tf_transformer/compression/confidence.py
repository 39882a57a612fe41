"""How sure the heads of a model are of where they look.

Axes: B batch, N heads, T queries, S keys.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import create_padding_mask
from tf_transformer.models.bert.token_layout import tokens_in
from tf_transformer.models.transformer import Transformer


def head_confidence(model, batches):
    """The mean over all tokens of the largest attention weight of each head.

    Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4.

    Args:
        model: built `Transformer` or BERT model.
        batches: iterable of batches as for `fit`.

    Returns:
        dict as `head_importance` returns.

    Raises:
        ValueError: If there is no batch.

    Example:
        >>> from tf_transformer.bert import Bert, BertConfig
        >>> model = Bert(BertConfig(13, 8, 2, 2, 16))
        >>> one_token = {"input_ids": np.array([[5]])}
        >>> [head.tolist() for head in head_confidence(model, [(one_token,)])["encoder"]]
        [[1.0, 1.0], [1.0, 1.0]]
    """
    names = {"encoder": "encoder_layer", "decoder": "block1", "cross": "block2"}

    def measured(x):
        """The attention weights of each kind, and which of the queries are tokens."""
        x = model.taken(x)
        if isinstance(model, Transformer):
            inp, tar = x
            _, found = model(x, training=False, return_attention_weights=True)
            padding = create_padding_mask(inp)
            _, more = model.encoder(inp, False, padding, return_attention_weights=True)
            found = {**found, **more}
            queries = {"encoder": inp, "decoder": tar, "cross": tar}
            return {
                name: ([w for key, w in found.items() if part in key], queries[name] != 0)
                for name, part in names.items()
            }
        encoder = getattr(model, "bert", model)
        found = encoder(x, training=False, return_attentions=True)["attentions"]
        tokens = tokens_in(x.get("attention_mask"))
        if tokens is None:
            tokens = tf.ones_like(x["input_ids"], tf.bool)
        return {"encoder": (found, tokens)}

    @tf.function(reduce_retracing=True, autograph=False)
    def sums(x):
        results = {}
        for name, (layers, tokens) in measured(x).items():
            tokens = tf.cast(tokens[:, tf.newaxis], tf.float32)  # (B, 1, T)
            largest = [tf.cast(tf.reduce_max(weights, -1), tf.float32) for weights in layers]
            results[name] = [tf.reduce_sum(each * tokens, (0, 2)) for each in largest]
            results[name].append(tf.reduce_sum(tokens))
        return results

    totals = None
    for batch in batches:
        batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
        part = tf.nest.map_structure(
            np.asarray, sums(keras.utils.unpack_x_y_sample_weight(batch)[0])
        )
        totals = part if totals is None else tf.nest.map_structure(np.add, totals, part)
    if totals is None:
        raise ArgumentError("batches", "at least one batch", "none")
    return {name: [layer / counts[-1] for layer in counts[:-1]] for name, counts in totals.items()}
