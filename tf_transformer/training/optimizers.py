"""Optimizers with one operation per weight, learning rate schedules, gradient accumulation.

Axes: B batch.
"""

import functools
import re

import keras
import tensorflow as tf

from tf_transformer.distribution import apart, current_workers, pad_labels, pad_rows
from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.labels import ignore_class_of, real_labels
from tf_transformer.functional.tensors import wide_dtype


def global_gradients(grads):
    """Add up the gradients of all replicas and take the mean over all `Workers`."""
    grads = list(grads)
    # Sums the repeated rows of an embedding's gradient, which Keras would clip separately.
    known = [tf.convert_to_tensor(grad) for grad in grads if grad is not None]
    context = tf.distribute.get_replica_context()
    if tf.distribute.get_strategy().num_replicas_in_sync > 1 and context is not None:
        known = context.all_reduce(tf.distribute.ReduceOp.SUM, known)
    means = iter(current_workers().mean(known))
    return [None if grad is None else next(means) for grad in grads]


@keras.saving.register_keras_serializable(package="tf_transformer")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` with one memory pass per weight instead of a dozen.

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
    w <- w - rate sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)

    (Kingma and Ba 2015, end of section 2; "Attention Is All You Need", section 5.3, uses b1 = 0.9,
    b2 = 0.98, epsilon = 1e-9.) Arguments, variables, checkpoints and, up to rounding, results are
    those of `keras.optimizers.Adam`, whose own code runs with `amsgrad=True`. Results differ if the
    gradient of an embedding contains a row twice: here the two are summed before clipping and
    squaring, while Keras 3.15 treats them separately. With several `Workers` or replicas, the
    gradients of the whole batch are clipped; Keras clips them on each replica.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(FusedAdam(1e-3, 0.9, 0.98, 1e-9), "mse")
        >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    """

    sums_done = False  # whether `apply` gets the gradients of the whole batch
    _scalars_once = None  # while `apply` runs: `_scalars`, computed once per dtype

    def __reduce__(self):
        return reduced(self, super().__reduce__)

    def apply(self, grads, trainable_variables=None):
        # Once per step: once per weight would be a fourth of a small model's operations.
        self._scalars_once = functools.cache(self._scalars)
        try:
            grads = grads if self.sums_done else global_gradients(grads)
            super().apply(grads, trainable_variables)
        finally:
            self._scalars_once = None

    def _scalars(self, dtype):
        step = tf.cast(self.iterations + 1, dtype)
        betas = [tf.constant(beta, dtype) for beta in (self.beta_1, self.beta_2)]
        return {
            "beta1": betas[0],
            "beta2": betas[1],
            "beta1_power": betas[0] ** step,
            "beta2_power": betas[1] ** step,
            "epsilon": tf.constant(self.epsilon, dtype),
        }

    def _clip_gradients(self, grads):
        most = self.clipnorm or self.global_clipnorm
        if not most or most < 0:
            return super()._clip_gradients(grads)
        # One operation for each norm: Keras's ten to twenty delay the start of training. In 32 bits
        # or more, since the sum of squares may overflow float16 and is coarse in bfloat16.
        wide = max(map(wide_dtype, grads), key=lambda dtype: dtype.size)
        squares = 2.0 * tf.stack([tf.nn.l2_loss(tf.cast(g, wide)) for g in grads])
        norms = tf.sqrt(squares if self.clipnorm else tf.reduce_sum(squares, keepdims=True))
        factors = most / tf.maximum(norms, most) + (norms - norms)  # NaN if a norm is not finite
        factors = tf.unstack(tf.broadcast_to(factors, (len(grads),)))
        return [g * tf.cast(factor, g.dtype) for g, factor in zip(grads, factors, strict=True)]

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # already summed

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        index = self._get_variable_index(variable)
        w, m, v = (
            x.value if isinstance(x, keras.Variable) else x
            for x in (variable, self._momentums[index], self._velocities[index])
        )
        tf.raw_ops.ResourceApplyAdam(
            var=w.handle,
            m=m.handle,
            v=v.handle,
            lr=tf.cast(learning_rate, w.dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), w.dtype),
            **(self._scalars_once or self._scalars)(w.dtype),
        )


def reduced(optimizer, reduce):
    """Pickle an optimizer; refuse a built one, whose moments Keras 3.15 would drop."""
    if optimizer.built:
        expected = "one that is not built to copy or pickle alone"
        got = f"a built {type(optimizer).__name__}, whose state belongs to the variables of a model"
        remedy = "Copy the compiled model, or use tf.train.Checkpoint."
        raise ArgumentError("optimizer", expected, got, remedy)
    return reduce()


# Scales and shifts are not decayed.
_WITHOUT_DECAY = ("bias", "output_bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerwiseAdamW(FusedAdam):
    """`FusedAdam` with decoupled weight decay and lower learning rates for lower layers.

    w <- w - rate_l (Adam's step + weight_decay w), rate_l = rate * layer_decay^(layers above it):
    the head and the pooler have the full rate, the embeddings the lowest. Loshchilov and Hutter
    2019, "Decoupled Weight Decay Regularization"; layer-wise rates from Howard and Ruder 2018,
    "Universal Language Model Fine-tuning", section 3.2. As in BERT's published code, biases and
    layer normalization are not decayed. A `layer_decay` outside (0, 1] is a ValueError.

    Args:
        weight_decay: float, applied to kernels and embeddings.
        layer_decay: float in (0, 1]; 1 gives all layers the same rate.
        learning_rate, beta_1, ...: same as in `keras.optimizers.Adam`.

    Example:
        >>> optimizer = LayerwiseAdamW(1e-3, weight_decay=0.01, layer_decay=0.9)
    """

    def __init__(self, learning_rate=1e-4, *, weight_decay=0.01, layer_decay=1.0, **kwargs):
        check(0 < layer_decay <= 1, "layer_decay", "a number in (0, 1]", layer_decay)
        super().__init__(learning_rate, **kwargs)
        self.decay = weight_decay  # Keras's decays before the step, at the same rate for all
        self.layer_decay = layer_decay

    def build(self, variables):
        depths = [_layer_number(variable.path) for variable in variables]
        top = max([depth for depth in depths if depth is not None], default=0) + 1
        self._factors = [
            self.layer_decay ** (0 if depth is None else top - depth) for depth in depths
        ]
        names = [variable.path.rsplit("/", 1)[-1] for variable in variables]
        self._decays = [0.0 if name in _WITHOUT_DECAY else self.decay for name in names]
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        rate = learning_rate * self._factors[index]
        if self._decays[index]:
            value = variable.value if isinstance(variable, keras.Variable) else variable
            value.assign_sub(value * tf.cast(rate * self._decays[index], value.dtype))
        super().update_step(gradient, variable, rate)

    def get_config(self):
        config = super().get_config()
        return {**config, "weight_decay": self.decay, "layer_decay": self.layer_decay}


def _layer_number(path):
    """Return a variable's layer number: 0 for the embeddings, None for the pooler or a head."""
    if "embeddings/" in path or "embedding_hidden_mapping_in" in path:
        return 0
    found = re.search(r"encoder/layer_(\d+)/", path)
    return int(found[1]) + 1 if found else None


@keras.saving.register_keras_serializable(package="tf_transformer")
class GlobalLossScale(keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` that also works with several `Workers` or replicas.

    The loss is multiplied by a scale, and the gradients are divided by it. A step with a gradient
    that is not finite is skipped and halves the scale; after many finite steps the scale doubles
    (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2). Keras 3.15 checks the
    gradients of each process or replica before the optimizer sums them. Here they are summed first,
    so that a step that overflows on one is skipped on all. Raises a ValueError if `inner_optimizer`
    is not a `FusedAdam`.

    Args:
        inner_optimizer: `FusedAdam`.
        initial_scale, dynamic_growth_steps: see `keras.optimizers.LossScaleOptimizer`.

    Example:
        >>> optimizer = GlobalLossScale(FusedAdam(0.1), initial_scale=4.0)
    """

    def __init__(self, inner_optimizer, *args, **kwargs):
        if not isinstance(inner_optimizer, FusedAdam):
            remedy = "Others add up gradients themselves: use keras.optimizers.LossScaleOptimizer."
            got = type(inner_optimizer).__name__
            raise ArgumentError("inner_optimizer", "a FusedAdam", got, remedy)
        super().__init__(inner_optimizer, *args, **kwargs)
        inner_optimizer.sums_done = True

    def __reduce__(self):
        return reduced(self, super().__reduce__)

    def apply(self, grads, trainable_variables=None):
        super().apply(global_gradients(grads), trainable_variables)


@keras.saving.register_keras_serializable(package="tf_transformer")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate with linear warm-up, then decay with the inverse square root of the step.

    scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), "Attention Is All You Need",
    equation 3, section 5.3, where steps are counted from 1. Keras counts finished steps from 0, so
    1 is added. Arguments must be positive, or a ValueError is raised.

    Args:
        d_model, warmup_steps: ints, width of the model, and steps until the peak.
        scale: float, multiplies the learning rate.

    Example:
        >>> schedule = InverseSquareRootSchedule(d_model=64, warmup_steps=100)
        >>> round(float(schedule(99)), 6)
        0.0125
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        for name, value in (("d_model", d_model), ("warmup_steps", warmup_steps), ("scale", scale)):
            check(value > 0, name, "a positive number", value)
        self.d_model, self.warmup_steps, self.scale = d_model, warmup_steps, scale

    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1.0
        rising = step * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * tf.minimum(tf.math.rsqrt(step), rising)

    def get_config(self):
        return {name: getattr(self, name) for name in ("d_model", "warmup_steps", "scale")}


@keras.saving.register_keras_serializable(package="tf_transformer")
class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate with linear warm-up to a peak, then linear decay to 0 at `total_steps`.

    peak * min((step + 1) / warmup_steps, (total_steps - step) / (total_steps - warmup_steps)),
    Devlin et al. 2019, appendix A.2. As in Keras, `step` counts finished steps from 0. Raises a
    ValueError if `peak` is not positive or 0 <= warmup_steps < total_steps does not hold.

    Differs from the published code, where the decay starts at step 0 and the warm-up replaces its
    beginning, so that the rate drops when the warm-up ends.

    Args:
        peak: float, the highest learning rate.
        warmup_steps: int, steps until the peak; 0 starts at the peak.
        total_steps: int, steps of the whole training, including the warm-up.

    Example:
        >>> schedule = WarmUpLinearDecay(peak=1.0, warmup_steps=2, total_steps=6)
        >>> [float(schedule(step)) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(self, peak, warmup_steps, total_steps):
        check(peak > 0, "peak", "a positive learning rate", peak)
        if not 0 <= warmup_steps < total_steps:
            expected, got = "0 <= warmup_steps < total_steps", f"{warmup_steps} and {total_steps}"
            remedy = "A tenth of the steps is a common warm-up."
            raise ArgumentError("warmup_steps, total_steps", expected, got, remedy)
        self.peak, self.warmup_steps, self.total_steps = peak, warmup_steps, total_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rising = (step + 1.0) / max(self.warmup_steps, 1)
        falling = (self.total_steps - step) / (self.total_steps - self.warmup_steps)
        return self.peak * tf.maximum(tf.minimum(rising, falling), 0.0)

    def get_config(self):
        return {name: getattr(self, name) for name in ("peak", "warmup_steps", "total_steps")}


def accumulate_gradients(model, parts):
    """Make each step of `fit` compute the gradient of its batch in parts, one after another.

    A step then needs the memory of one part. Parts are weighted by their number of real labels, so
    losses, gradients, clipping and averages are the same as for the whole batch (in Keras's
    `gradient_accumulation_steps` they are not), except statistics over rows, as in `BatchNorm`.
    Raises a ValueError if `parts` is below 1; in a step, if the batch has sample weights.

    Args:
        model: compiled `keras.Model` whose loss is a mean over real labels, such as
            `SmoothedCrossentropy`.
        parts: int, the number of parts. Rows of padding make B divisible.

    Example:
        >>> from tf_transformer.training import SmoothedCrossentropy
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile("sgd", SmoothedCrossentropy())
        >>> accumulate_gradients(model, 2)
        >>> history = model.fit(np.ones((5, 2)), np.array([0, 1, 2, 0, 1]), verbose=0)
    """
    check(parts >= 1, "accumulate", "at least 1 part of a batch", parts)
    if parts == 1:
        return
    # After an earlier call, for example by a first `fine_tune`, not the parts of a part.
    step_of_part = getattr(model.train_step, "step_of_part", model.train_step)

    def train_step(data):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        check(weights is None, "accumulate", "batches without sample weights", "some")
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
