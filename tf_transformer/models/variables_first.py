"""What models add to `fit`: variables that exist before it, labels that fit the task."""

import keras
import tensorflow as tf


class VariablesFirst:
    """Mixin that creates all variables, including the optimizer's, before `fit` traces a step.

    Otherwise Keras creates missing variables in the first step. TensorFlow traces such a step
    twice, and each variable adds conditionals to the first trace: for a Transformer of 2 + 2
    layers, this is half of the time before training begins. Metrics given by name
    (`metrics=["accuracy"]`) still create variables in the first step; metric objects do not.

    Example:
        >>> class Line(VariablesFirst, keras.Model):
        ...     def build(self, input_shape=None):
        ...         self.slope = self.add_weight(shape=())
        ...
        ...     def call(self, x):
        ...         return self.slope * x
        >>> model = Line()
        >>> model.compile(keras.optimizers.Adam(), "mse")
        >>> model.make_train_function()
        >>> model.built, model.optimizer.built
        (True, True)
    """

    def make_train_function(self, force=False):
        """Create the variables, then the function that `fit` and `train_on_batch` call."""
        if not self.built:
            self.build()
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Build with the batch of one replica, not with the mean of all as Keras.

        A mean of ids is float, and there is none of batches of different sizes.
        """
        if iterator is not None and self._distribute_strategy is not None:
            local_results = self._distribute_strategy.experimental_local_results
            _, _, batches = next(iter(iterator))
            data_batch = tf.nest.map_structure(lambda x: local_results(x)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)


class TaskLabels:
    """Mixin for a model that knows which label does not count in its task.

    `compile` gives `ignore_class`, an attribute of the model, to losses and metrics that have
    "auto" there, see `SmoothedCrossentropy`.

    Example:
        >>> from tf_transformer.training import SmoothedCrossentropy
        >>> class Tagger(TaskLabels, keras.Model):
        ...     ignore_class = -100
        >>> loss = SmoothedCrossentropy()
        >>> Tagger().compile("sgd", loss)
        >>> loss.ignore_class
        -100
    """

    ignore_class = "auto"

    def compile(self, *args, **kwargs):
        """See `keras.Model.compile`."""
        for part in tf.nest.flatten((args, kwargs)):
            if getattr(part, "ignore_class", None) == "auto":
                part.ignore_class = self.ignore_class
        super().compile(*args, **kwargs)

    def compile_from_config(self, config):
        """Compile a model that is loaded, which Keras leaves to classes with a `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)
