"""Removes heads and inner units in several steps, with training in between."""

from tf_transformer.compression.choosing import least_important
from tf_transformer.compression.importance import head_importance, unit_importance
from tf_transformer.compression.pruning import pruned
from tf_transformer.errors import ArgumentError


def prune_gradually(model, batches, train, *, heads=0.0, units=0.0, steps=1, by="gradient"):
    """Remove the least important heads and inner units, a part at a time; train after each part.

    Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4: the importance is
    measured again before each step. With one step, all are removed at once.

    Args:
        model: compiled `Transformer` or BERT model; it does not change.
        batches: batches to measure the importance, see `head_importance`. They are read again for
            each step.
        train: function called with each smaller model: it compiles and trains it.
        heads, units: floats in [0, 1), the share of all heads, and of all inner units of the
            feed-forward networks, to remove in all.
        steps: int, how many times to remove and train.
        by: see `head_importance`; for units "gradient" or "ablation".

    Returns:
        The smaller model after the last training.

    Raises:
        ValueError: If both shares are 0 or `steps` is below 1; see also `head_importance`,
            `unit_importance` and `least_important`.

    Example:
        >>> from tf_transformer import Transformer
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model = Transformer(1, 8, 4, 32, 11, 11, pe_input=16, pe_target=16)
        >>> model.compile(loss=loss)
        >>> model.build()
        >>> data = [((np.array([[5, 6, 2]]), np.array([[1, 7]])), np.array([[7, 2]]))]
        >>> train = lambda smaller: smaller.compile(keras.optimizers.Adam(), loss)
        >>> smaller = prune_gradually(model, data, train, heads=0.5, units=0.25, steps=2)
        >>> sizes = smaller.get_config()["layer_sizes"]
        >>> sum(sizes["encoder"][0][:1] + sizes["decoder"][0][:2])
        6
    """
    if steps < 1:
        raise ArgumentError("steps", "at least 1", steps)
    measures = {"heads": (head_importance, heads), "units": (unit_importance, units)}
    measures = {name: (measure, share) for name, (measure, share) in measures.items() if share}
    if not measures:
        raise ArgumentError("heads, units", "a share above 0 of one of them", "0 of both")
    counts = {}  # in the model that was passed
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
