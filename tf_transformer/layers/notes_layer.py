"""Calling conventions of the notes that Keras does not provide itself."""

import inspect

import tensorflow as tf

from tf_transformer.layers.whole_state import WholeState

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


class NotesLayer(WholeState):
    """Mixin that allows positional arguments and stops the propagation of Keras masks.

    `layer(x, True, mask)` means the same as `layer.call(x, True, mask)`: Keras accepts only tensors
    by position, so every positional argument after the first is passed by its name in `call`.

    A Keras mask (for example from `Embedding(mask_zero=True)`) is accepted without a warning and
    not propagated: otherwise `fit` would silently weight the loss by it.

    Raises:
        TypeError: If there are more positional arguments than `call` takes, or an argument is given
            twice.

    Example:
        >>> class Scale(NotesLayer, keras.layers.Layer):
        ...     def call(self, x, factor=1.0):
        ...         return x * factor
        >>> float(Scale()(tf.ones(()), 3.0))
        3.0
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.supports_masking = True

    def __call__(self, *args, **kwargs):
        parameters = inspect.signature(self.call).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind != KEYWORD_ONLY]
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__}: expected at most {len(names)} arguments "
                f"({', '.join(names)}), got {len(args)}."
            )
        for name, value in zip(names[1:], args[1:], strict=False):
            if name in kwargs:
                raise TypeError(
                    f"{type(self).__name__}: {name} was given twice, by position and by name."
                )
            kwargs[name] = value
        outputs = super().__call__(*args[:1], **kwargs)
        return vars(self).pop("_result_with_none", outputs)

    def symbolic_call(self, *args, **kwargs):
        """Return the outputs that a functional model records: tensors only, as Keras requires.

        `__call__` returns the full result. A None must come after the tensors, as in
        `(output, None)`: Keras finds the outputs of a recorded call by position.
        """
        outputs = super().symbolic_call(*args, **kwargs)
        flat = tf.nest.flatten(outputs)
        tensors = [tensor for tensor in flat if tensor is not None]
        if len(tensors) == len(flat):
            return outputs
        vars(self)["_result_with_none"] = outputs  # not by assignment, which Keras tracks
        return tensors

    def compute_mask(self, *args, **kwargs):
        """Return None: this layer does not propagate masks."""
        return None
