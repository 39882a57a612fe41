"""Removes heads in several steps, with training in between."""

from tf_transformer.compression.choosing import least_important
from tf_transformer.compression.importance import head_importance
from tf_transformer.compression.pruning import pruned


def prune_heads_gradually(model, batches, share, train, *, steps=1, by="gradient"):
    """Remove the least important heads, a part at a time, and train after each part.

    Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4: the importance is
    measured again before each step. With one step, all heads are removed at once.

    Args:
        model: compiled `Transformer` or BERT model; it does not change.
        batches: batches to measure the importance, see `head_importance`. They are read once for
            each step.
        share: float in [0, 1), the share of the model's heads to remove in all.
        train: function, model -> None, which compiles the smaller model and trains it.
        steps: int, how many times to remove and train.
        by: see `head_importance`.

    Returns:
        The smaller model after the last training.

    Raises:
        ValueError: If `steps` is below 1; see also `head_importance` and `least_important`.

    Example:
        >>> from tf_transformer import Transformer
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model = Transformer(1, 8, 4, 32, 11, 11, pe_input=16, pe_target=16)
        >>> model.compile(loss=loss)
        >>> model.build()
        >>> data = [((np.array([[5, 6, 2]]), np.array([[1, 7]])), np.array([[7, 2]]))]
        >>> train = lambda smaller: smaller.compile(keras.optimizers.Adam(), loss)
        >>> smaller = prune_heads_gradually(model, data, 0.5, train, steps=2)
        >>> sizes = smaller.get_config()["layer_sizes"]
        >>> sum(sizes["encoder"][0][:1] + sizes["decoder"][0][:2])
        6
    """
    if steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}.")
    heads, removed = None, 0
    for step in range(1, steps + 1):
        importance = head_importance(model, batches, by)
        left = sum(len(layer) for layers in importance.values() for layer in layers)
        heads = heads or left
        wanted = round(share * heads * step / steps) - removed
        model = pruned(model, heads=least_important(importance, wanted / left))
        removed += wanted
        train(model)
    return model
