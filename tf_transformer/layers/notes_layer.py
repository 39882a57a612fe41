"""Calling conventions of the notes that Keras does not provide itself."""

import functools
import inspect

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.whole_state import WholeState

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


class NotesLayer(WholeState):
    """Mixin that allows positional arguments, takes Keras masks and passes them on.

    `layer(x, True, mask)` means the same as `layer.call(x, True, mask)`: Keras accepts only tensors
    by position, so every positional argument after the first is passed by its name in `call`.

    A Keras mask, for example from `Embedding(mask_zero=True)`, is False for padding. That of an
    argument `x` is passed to `call` as `x_mask`, if `call` has such an argument and it was not
    given. That of the first argument is also the mask of the first output. `mask` only has what
    was passed as `mask`.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.supports_masking = True

    def __call__(self, *args, **kwargs):
        names, with_mask = _arguments(type(self).call)
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
        if len(getattr(kwargs.get("training"), "shape", ())):  # `layer(x, mask)`
            raise ArgumentError(
                "training",
                "a bool or None",
                f"a tensor of shape {tuple(kwargs['training'].shape)}",
                "Pass a mask by name: mask=...",
            )
        for name in with_mask:
            tensor = args[0] if args and name == names[0] else kwargs.get(name)
            mask = getattr(tensor, "_keras_mask", None)
            if mask is not None and kwargs.get(f"{name}_mask") is None:
                # Keras would fill in `mask` if there is one tensor, and record it in a functional
                # model: the layer would then depend on the ids, not on `x` alone. It records no
                # mask if there is any other keyword, and finds the mask again in each call.
                is_symbolic = isinstance(mask, keras.KerasTensor)
                kwargs[f"{name}_mask"] = None if is_symbolic else tf.cast(mask, tf.bool)
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

    def compute_mask(self, inputs, previous_mask=None):
        """Return the Keras mask of the first argument.

        Not `previous_mask`, for which Keras takes what was passed as `mask`.
        """
        del previous_mask
        return getattr(inputs, "_keras_mask", None)


@functools.cache
def _arguments(call):
    """Names of the arguments that can be positional, and of those whose Keras mask `call` takes."""
    _, *parameters = inspect.signature(call).parameters.values()  # without `self`
    names = [parameter.name for parameter in parameters if parameter.kind != KEYWORD_ONLY]
    every = [parameter.name for parameter in parameters]
    return names, [name for name in every if f"{name}_mask" in every]
