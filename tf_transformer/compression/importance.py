"""Importance of heads and inner units, and gradual pruning.

Axes: B batch, N heads or inner units of a layer, T queries, S keys, D model width.
"""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.compression.pruning import attention_sites, network_sites, pruned
from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.attention.masks import padding_mask
from tf_transformer.functional.tensors import are_tokens
from tf_transformer.models.bert.attention import tokens_in
from tf_transformer.models.transformer import Transformer


def head_confidence(model, batches):
    """Measure the largest attention weight of each head, averaged over all tokens.

    Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4.

    Args:
        model, batches: see `head_importance`, also for the result and the errors; the model need
            not be compiled.

    Example:
        >>> from tf_transformer.bert import Bert, BertConfig
        >>> model = Bert(BertConfig(13, 8, 2, 2, 16))
        >>> one_token = {"input_ids": np.array([[5]])}
        >>> [head.tolist() for head in head_confidence(model, [(one_token,)])["encoder"]]
        [[1.0, 1.0], [1.0, 1.0]]
    """

    def measured(x):
        """Return each kind's attention weights and the mask of queries that are tokens."""
        x = model.as_inputs(x)
        if isinstance(model, Transformer):
            inp, tar = x
            padding = padding_mask(inp, model.pad_id)
            _, encoder = model.encoder(inp, False, padding, return_attention_weights=True)
            _, found = model(x, training=False, return_attention_weights=True)
            decoder, cross = (
                [weights for key, weights in found.items() if key.endswith(block)]
                for block in ("_block1", "_block2")
            )
            inp, tar = (are_tokens(ids, model.pad_id) for ids in (inp, tar))
            return {
                "encoder": ([*encoder.values()], inp),
                "decoder": (decoder, tar),
                "cross": (cross, tar),
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
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        part = tf.nest.map_structure(np.asarray, sums(x))
        totals = part if totals is None else tf.nest.map_structure(np.add, totals, part)
    check(totals is not None, "batches", "at least one batch", "none")
    return {name: [layer / counts[-1] for layer in counts[:-1]] for name, counts in totals.items()}


def head_importance(model, batches, by="gradient"):
    """Measure how much a model needs each of its heads.

    "gradient": the expected size of the gradient of the loss L with respect to a gate on the head's
    output, E_x |dL(x) / d gate|, Michel et al. 2019, "Are Sixteen Heads Really Better than One?",
    section 4.1. "ablation": the increase of the loss without the head, their section 3.2.
    "confidence": see `head_confidence`. Dropout is off, and the model does not change. Raises a
    ValueError if the model has another class or is not built or compiled, or there is no batch.

    Args:
        model: compiled `Transformer` or BERT model; its loss is used.
        batches: iterable of batches as for `fit`, such as a `tf.data.Dataset`, with a few hundred
            examples (rows).
        by: "gradient", "ablation" or "confidence".

    Returns:
        dict, "encoder" and for a `Transformer` also "decoder" (self-attention) and "cross" -> list
        with a float array (N,) for each layer.

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

    Arguments, result and errors are those of `head_importance`, without "confidence" and "cross";
    "ablation" is slow. A layer with two networks (Macaron) is a ValueError.

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
    check(by in measures, "by", "gradient, ablation or confidence", f"{by!r}")
    check(model.compiled, "model", "a compiled model, whose loss is used", "", "Call compile().")
    flat = [site for layers in sites.values() for site in layers]
    results = iter(measures[by](model, batches, flat))
    return {name: [next(results) for _ in layers] for name, layers in sites.items()}


def _by_gradient(model, batches, sites):
    kernels = [site.after.kernel.value for site in sites]

    def gates(example):
        """Return the size of each gate's gradient, computed from the kernel's rows."""
        example = tf.nest.map_structure(lambda t: tf.expand_dims(t, 0), example)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(example)
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
        examples += len(tf.nest.flatten(batch)[0])
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
    check(examples, "batches", "at least one example", "none")
    return examples


def least_important(importance, share, *, relative=True):
    """Choose the least important heads or units of a whole model, but one of each layer.

    Returns a dict, name -> {layer: list of numbers}, for `pruned`. Raises a ValueError if a number
    is not finite, or the share is out of range or too large for each layer to keep one.

    Args:
        importance: dict, name -> list with a float array (N,) for each layer, from
            `head_importance` or `unit_importance`.
        share: float in [0, 1), the share of all heads to choose.
        relative: bool, whether to divide the importance by its Euclidean norm in each layer, so
            that layers can be compared; Michel et al. 2019, section 4.1.

    Example:
        >>> importance = {"encoder": [np.array([3.0, 1.0, 2.0]), np.array([0.3, 0.1])]}
        >>> least_important(importance, 0.4)
        {'encoder': {0: [1], 1: [1]}}
    """
    check(0 <= share < 1, "share", "a number in [0, 1)", f"{share!r}")
    layers = {(name, n): v for name, some in importance.items() for n, v in enumerate(some)}
    count = round(share * sum(len(values) for values in layers.values()))
    candidates = []
    for place, values in layers.items():
        values = np.asarray(values, np.float64)
        check(np.isfinite(values).all(), "importance", "finite numbers", f"{values} in {place}")
        if relative:
            values = values / (np.linalg.norm(values) or 1.0)
        best = np.argmax(values)  # stays
        candidates += [(value, place, n) for n, value in enumerate(values) if n != best]
    if count > len(candidates):
        most = len(candidates) / sum(map(len, layers.values()))
        raise ArgumentError("share", f"at most {most:.3f}, so that each layer keeps one", share)
    chosen = {name: {} for name in importance}
    for _, (name, layer), n in sorted(candidates)[:count]:
        chosen[name].setdefault(layer, []).append(n)
    return {
        name: {layer: sorted(found) for layer, found in sorted(some.items())}
        for name, some in chosen.items()
    }


def arbitrary_cuts(model, heads, units):
    """Choose these shares of heads and inner units, as `least_important` if all are alike."""
    cuts = {}
    for name, share, find in (("heads", heads, attention_sites), ("units", units, network_sites)):
        if share:
            sites = find(model).items()
            alike = {stack: [np.ones(site.count) for site in each] for stack, each in sites}
            try:
                cuts[name] = least_important(alike, share)
            except ArgumentError as error:
                raise error.inside(name) from None
    return cuts


def prune_gradually(model, batches, train, *, heads=0.0, units=0.0, steps=1, by="gradient"):
    """Remove the least important heads and inner units in steps, training after each step.

    Michel et al. 2019, section 4: the importance is measured again before each step. Returns the
    smaller model after the last training. Raises a ValueError if both shares are 0 or `steps` is
    below 1; see also `head_importance`, `unit_importance` and `least_important`.

    Args:
        model: compiled `Transformer` or BERT model; it does not change.
        batches: batches for measuring importance, see `head_importance`; read again in each step.
        train: function called with each smaller model, to compile and train it.
        heads, units: floats in [0, 1), the total share of heads, and of inner units, to remove.
        steps: int, the number of times to remove and train.
        by: see `head_importance`; for units, "gradient" or "ablation".

    Example:
        >>> from tf_transformer import Transformer
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model = Transformer(1, 8, 4, 32, 11, 11, pe_input=16, pe_target=16)
        >>> model.build()
        >>> model.compile(loss=loss)
        >>> data = [((np.array([[5, 6, 2]]), np.array([[1, 7]])), np.array([[7, 2]]))]
        >>> train = lambda smaller: smaller.compile(keras.optimizers.Adam(), loss)
        >>> smaller = prune_gradually(model, data, train, units=0.25, steps=2)
    """
    check(steps >= 1, "steps", "at least 1", steps)
    measures = {"heads": (head_importance, heads), "units": (unit_importance, units)}
    measures = {name: (measure, share) for name, (measure, share) in measures.items() if share}
    check(measures, "heads, units", "a share above 0 of one of them", "0 of both")
    arbitrary_cuts(model, heads, units)  # errors are found before the first training
    counts = {}  # in the original model
    for step in range(1, steps + 1):
        cuts = {}
        for name, (measure, share) in measures.items():
            importance = measure(model, batches, by)
            left = sum(len(layer) for layers in importance.values() for layer in layers)
            whole = counts.setdefault(name, left)
            wanted = round(share * whole * step / steps) - (whole - left)
            cuts[name] = least_important(importance, wanted / left)
        model = pruned(model, **cuts)
        train(model)
    return model
