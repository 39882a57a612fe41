"""What the notes' layers need and Keras does not do by itself."""

import inspect

import tensorflow as tf


class NotesLayer:
    """Mixin: arguments by position, and no Keras mask that leaks.

    `layer(x, True, mask)` means what `layer.call(x, True, mask)` means: Keras accepts only tensors
    by position, so every positional argument after the first is bound to its name in `call` and
    handed on by keyword.

    A Keras mask (of an `Embedding(mask_zero=True)`, say) is accepted without a warning and ends
    here: further on, `fit` would silently weight the loss by it.

    Raises:
        TypeError: more positional arguments than `call` takes, or one argument given twice.

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
        names = list(inspect.signature(self.call).parameters)
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
        """The outputs that a functional model records: tensors only, which Keras insists on.

        `__call__` returns the whole result. A None must come after the tensors, as in
        `(output, None)`: Keras finds the outputs of a recorded call by their position.
        """
        outputs = super().symbolic_call(*args, **kwargs)
        flat = tf.nest.flatten(outputs)
        tensors = [tensor for tensor in flat if tensor is not None]
        if len(tensors) == len(flat):
            return outputs
        vars(self)["_result_with_none"] = outputs  # not by assignment, which Keras tracks
        return tensors

    def compute_mask(self, *args, **kwargs):
        """No mask leaves this layer."""
        return None
