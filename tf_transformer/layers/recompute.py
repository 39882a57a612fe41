"""Layers whose inner values are computed again for the gradients, instead of kept."""

import contextlib
import contextvars

import keras
import tensorflow as tf

_recomputes = contextvars.ContextVar("recompute_layers", default=False)


@contextlib.contextmanager
def recompute_layers(recompute=True):
    """Set whether training keeps only the inputs of each layer, in a `with` block.

    The gradients are the same, dropout included, for less memory and about a third more work: Chen
    et al. 2016, "Training Deep Nets with Sublinear Memory Cost". It applies to the layers of
    `Encoder` and `Decoder`, and so of `Transformer` and `LanguageModel`, if `training` is true.
    Functions traced inside the block keep the setting: call `compile` and `fit` there.

    Args:
        recompute: bool.

    Example:
        >>> from tf_transformer import LanguageModel
        >>> model = LanguageModel(2, 8, 2, 16, vocab_size=13, max_position=9)
        >>> ids = tf.constant([[1, 7, 5]])
        >>> with recompute_layers():
        ...     model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
        ...     _ = model.fit(ids, ids, verbose=0)
    """
    token = _recomputes.set(recompute)
    try:
        yield
    finally:
        _recomputes.reset(token)


def run_layer(layer, *inputs, training, **options):
    """`layer(*inputs, training=training, **options)`, perhaps computed again for its gradients.

    Gradients reach `inputs` and the layer's weights, but no tensor of the `options`.
    """
    options["training"] = training
    if not (training and _recomputes.get()):
        return layer(*inputs, **options)
    count, weights, states = len(inputs), layer.trainable_variables, layer.non_trainable_variables
    # The values of `_value` are in the weights' own dtypes, whatever the policy of the caller.
    values = [tf.convert_to_tensor(variable._value) for variable in (*weights, *states)]
    before, after, structure = values[len(weights) :], [], None

    def run(tensors, states_before):
        nonlocal structure
        values = (*tensors[count:], *states_before)
        # A scope instead of the variables: the second time, seeds are those of the first, and
        # nothing is assigned. `tf.recompute_grad`, which Keras uses, draws other factors.
        with keras.StatelessScope(list(zip((*weights, *states), values, strict=True))) as scope:
            structure = layer(*tensors[:count], **options)
        outputs = [output for output in tf.nest.flatten(structure) if output is not None]
        return outputs, [scope.get_current_value(state) for state in states]

    @tf.custom_gradient
    def compute(*tensors):
        outputs, after[:] = run(tensors, before)

        def gradient(*upstream):
            with tf.GradientTape() as tape:
                again = [_after(tensor, upstream[0]) for tensor in tensors]
                tape.watch(again)
                outputs, _ = run(again, [_after(state, upstream[0]) for state in before])
            return tape.gradient(outputs, again, upstream, unconnected_gradients="zero")

        return outputs, gradient

    outputs = iter(compute(*inputs, *values[: len(weights)]))
    for state, old, new in zip(states, before, after, strict=True):
        if new is not old:
            state.assign(new)
    return tf.nest.map_structure(lambda x: x if x is None else next(outputs), structure)


def _after(tensor, other):
    """The same tensor, but depending on another one: no compiler merges equal computations."""
    first = tf.reduce_max(tf.reshape(other, (-1,))[:1])  # -inf if there is none
    # 0, which no compiler knows: NaN is not equal to itself. As in `tf.recompute_grad`.
    zero = tf.where(tf.equal(first, first), 0.0, float("nan"))
    return tensor + tf.cast(zero, tensor.dtype)
