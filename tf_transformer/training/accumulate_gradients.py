"""Gradient accumulation over the parts of a batch that is too large for the memory.

Axes: B batch.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution import apart, current_workers, pad_labels, pad_rows
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.labels import ignore_class_of, real_labels


def accumulate_gradients(model, parts):
    """Make each step of `fit` compute the gradient of its batch in parts, one after another.

    A step then needs the memory of one part. Parts are weighted by their number of real labels, so
    losses, gradients, clipping and averages are the same as for the whole batch, except that
    statistics over rows, as in `BatchNorm`, are computed per part. Keras's
    `gradient_accumulation_steps` gives all parts the same weight, even if they are mostly padding.

    Args:
        model: compiled `keras.Model` whose loss is a mean over real labels, such as
            `SmoothedCrossentropy`.
        parts: int, the number of parts. Rows of padding make B divisible.

    Raises:
        ValueError: If `parts` is below 1; in a step, if the batch has sample weights.

    Example:
        >>> from tf_transformer.training import SmoothedCrossentropy
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile("sgd", SmoothedCrossentropy())
        >>> accumulate_gradients(model, 2)
        >>> history = model.fit(np.ones((5, 2)), np.array([0, 1, 2, 0, 1]), verbose=0)
    """
    if parts < 1:
        raise ArgumentError("accumulate", "at least 1 part of a batch", parts)
    if parts == 1:
        return
    # After an earlier call, for example by a first `fine_tune`, not the parts of a part.
    step_of_part = getattr(model.train_step, "step_of_part", model.train_step)

    def train_step(data):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        if weights is not None:
            raise ArgumentError("accumulate", "batches without sample weights", "some")
        x, y = pad_rows(x, parts), pad_labels(y, parts)
        weights = _weights(y, model.loss, parts)
        optimizer, variables = model.optimizer, model.trainable_variables

        def add_part(n, sums):
            part = tf.nest.map_structure(lambda rows: rows[n::parts], (x, y))
            own = [
                tf.fill([tf.shape(labels)[0]] + [1] * (labels.shape.rank - 1), weights[i, n])
                for i, labels in enumerate(tf.nest.flatten(part[1]))
            ]
            part += (tf.nest.pack_sequence_as(y, own),)
            gradients = _gradients(optimizer, variables, step_of_part, part)
            return n + 1, [total + one for total, one in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(variable.shape) for variable in variables]
        loop = (0, zeros)
        _, sums = tf.while_loop(lambda n, _: n < parts, add_part, loop, parallel_iterations=1)
        optimizer.apply_gradients(zip([total / parts for total in sums], variables, strict=True))
        return model.get_metrics_result()

    train_step.step_of_part = step_of_part
    model.train_step = train_step


def _weights(y, losses, parts):
    """Return the weights of the parts for each output, (outputs, parts); 1 for equal parts."""
    own, y, losses = [], tf.nest.flatten(y), tf.nest.flatten(losses)
    for labels, loss in zip(y, losses * len(y) if len(losses) == 1 else losses, strict=True):
        if ignore_class_of(loss) == "auto" and labels.shape.rank == 2 and labels.shape[-1] == 1:
            may_be = f"since {labels.shape} may be classes or tokens"
            expected = f"labels (B,) or an ignore_class of the loss, {may_be}"
            raise ArgumentError("accumulate", expected, '"auto"', "Pass None or an int.")
        real = real_labels(labels, ignore_class_of(loss))
        real = tf.reduce_sum(tf.reshape(real, [tf.shape(real)[0], -1]), 1)
        own.append(tf.reduce_sum(tf.reshape(real, [-1, parts]), 0))  # every `parts`-th row
    [own] = current_workers().sum([tf.stack(own)])
    total, replicas = tf.reduce_sum(own, 1), tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, total)
    return parts * replicas * own / tf.maximum(total, 1.0)[:, tf.newaxis]


def _gradients(optimizer, variables, step, data):
    """Return the gradients of a step without applying them."""
    found = {}

    def keep(pairs):
        found.update((id(variable), gradient) for gradient, variable in pairs)

    optimizer.apply_gradients = keep
    try:
        with apart():
            step(data)
    finally:
        del optimizer.apply_gradients
    gradients = [found.get(id(variable)) for variable in variables]
    return [
        tf.zeros(variable.shape) if gradient is None else tf.convert_to_tensor(gradient)
        for variable, gradient in zip(variables, gradients, strict=True)
    ]
