"""Calling a Keras layer the way the notes call it: everything by position."""

import inspect


class PositionalArguments:
    """Mixin: lets `layer(x, True, mask)` mean what `layer.call(x, True, mask)` means.

    Keras accepts only tensors by position. This binds every positional argument after the first
    to its name in `call` and hands it to Keras by keyword.

    Raises:
        TypeError: more positional arguments than `call` takes, or one argument given twice.

    Example:
        >>> class Scale(PositionalArguments, keras.layers.Layer):
        ...     def call(self, x, factor=1.0):
        ...         return x * factor
        >>> float(Scale()(tf.ones(()), 3.0))
        3.0
    """

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
        return super().__call__(*args[:1], **kwargs)
