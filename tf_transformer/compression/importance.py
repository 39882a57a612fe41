"""How much a model needs each of its heads or inner units.

Axes: N heads or units of a layer, D model width.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.compression.confidence import head_confidence
from tf_transformer.compression.prunable import attention_sites, network_sites
from tf_transformer.errors import ArgumentError


def head_importance(model, batches, by="gradient"):
    """Measure how much a model needs each of its heads.

    "gradient": the expected size of the gradient of the loss L with respect to a gate on the head's
    output, E_x |dL(x) / d gate|, Michel et al. 2019, "Are Sixteen Heads Really Better than One?",
    section 4.1. "ablation": by how much the loss rises without the head, their section 3.2.
    "confidence": the mean of its largest attention weight over all tokens, Voita et al. 2019,
    "Analyzing Multi-Head Self-Attention", section 4. Dropout is off, and the model does not change.

    Args:
        model: compiled `Transformer` or BERT model; its loss is used.
        batches: iterable of batches as for `fit`, such as a `tf.data.Dataset`: a few hundred
            examples. An example is a row of a batch.
        by: "gradient", "ablation" or "confidence".

    Returns:
        dict, "encoder" and for a `Transformer` also "decoder" (self-attention) and "cross" -> list
        with a float array (N,) for each layer.

    Raises:
        ValueError: If the model is of another class, not built or not compiled, or there is no
            batch.

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(2, 8, 2, 32, 11, 11, pe_input=16, pe_target=16)
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> model.build()
        >>> inputs = np.array([[5, 6, 2]]), np.array([[1, 7, 8]])
        >>> importance = head_importance(model, [(inputs, np.array([[7, 8, 2]]))])
        >>> [layer.shape for layer in importance["cross"]]
        [(2,), (2,)]
    """
    if by == "confidence":
        return head_confidence(model, batches)
    return _importance(model, batches, attention_sites(model), by)


def unit_importance(model, batches, by="gradient"):
    """Measure how much a model needs each inner unit of its feed-forward networks.

    As `head_importance`, with a gate on each unit.

    Args:
        model, batches, by: see `head_importance`. There are many units: "ablation" is slow.

    Returns:
        dict, "encoder" and for a `Transformer` also "decoder" -> list with a float array (N,) for
        each layer.

    Raises:
        ValueError: See `head_importance`; or if a layer has two networks (Macaron).

    Example:
        >>> from tf_transformer.bert import BertConfig, BertForSequenceClassification
        >>> model = BertForSequenceClassification(BertConfig(13, 8, 1, 2, 16, labels=("a", "b")))
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> model.build()
        >>> batch = {"input_ids": np.array([[5, 6, 7]])}, np.array([1])
        >>> unit_importance(model, [batch])["encoder"][0].shape
        (16,)
    """
    return _importance(model, batches, network_sites(model), by)


def _importance(model, batches, sites, by):
    measures = {"gradient": _by_gradient, "ablation": _by_ablation}
    if by not in measures:
        raise ArgumentError("by", "gradient, ablation or confidence", f"{by!r}")
    if not model.compiled:
        raise ArgumentError(
            "model", "a compiled model, whose loss is used", remedy="Call compile()."
        )
    flat = [site for layers in sites.values() for site in layers]
    results = iter(measures[by](model, batches, flat))
    return {name: [next(results) for _ in layers] for name, layers in sites.items()}


def _by_gradient(model, batches, sites):
    kernels = [site.after.kernel.value for site in sites]

    def gates(example):
        """The size of the gradient of each gate: the kernel's rows stand in for the gates."""
        x, y, weights = keras.utils.unpack_x_y_sample_weight(
            tf.nest.map_structure(lambda t: tf.expand_dims(t, 0), example)
        )
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(kernels)
            loss = model.compute_loss(x, y, model(x, training=False), weights, training=False)
        pulls = zip(sites, kernels, tape.gradient(loss, kernels), strict=True)
        return [
            tf.abs(tf.reduce_sum(tf.reshape(kernel * pull, (site.count, -1)), 1))
            for site, kernel, pull in pulls
        ]

    @tf.function(reduce_retracing=True, autograph=False)
    def sums(batch):
        kinds = [tf.TensorSpec((site.count,), site.after.kernel.dtype) for site in sites]
        each = tf.map_fn(gates, batch, fn_output_signature=kinds)
        return [tf.reduce_sum(gate, 0) for gate in each]

    totals, examples = [0.0] * len(sites), 0
    for batch in batches:
        batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
        examples += tf.nest.flatten(batch)[0].shape[0]
        totals = [total + part.numpy() for total, part in zip(totals, sums(batch), strict=True)]
    return [total / _some(examples) for total in totals]


def _by_ablation(model, batches, sites):
    batches = list(batches)

    @tf.function(reduce_retracing=True, autograph=False)
    def loss_of(batch):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        return model.compute_loss(x, y, model(x, training=False), weights, training=False)

    def loss():
        sizes = [len(tf.nest.flatten(batch)[0]) for batch in batches]
        losses = [float(loss_of(batch)) for batch in batches]
        return np.dot(losses, sizes) / _some(sum(sizes))

    whole, results = loss(), []
    for site in sites:
        kernel, rises = site.after.kernel, np.zeros(site.count)
        before = kernel.numpy()
        try:
            for n in range(site.count):
                without = before.copy()
                without[n * site.width : (n + 1) * site.width] = 0
                kernel.assign(without)
                rises[n] = loss() - whole
        finally:
            kernel.assign(before)
        results.append(rises)
    return results


def _some(examples):
    if not examples:
        raise ArgumentError("batches", "at least one example", "none")
    return examples
