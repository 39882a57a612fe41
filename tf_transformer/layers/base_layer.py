"""Mixins of the layers: calls as in the notes, ids that are never cast, complete state."""

import functools
import inspect

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.tensors import as_ids


def attributes(owner, *names):
    """Some attributes of an object by name, for `get_config`."""
    return {name: getattr(owner, name) for name in names}


class WholeState:
    """Mixin for layers whose checkpoints and `.keras` files have all of their state."""

    # Keras 3.15 hides layers in lists and dicts and the states of random generators from
    # `tf.train.Checkpoint`, and only functional models record which layers are frozen.

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "checkpoint":  # in a SavedModel, Keras shows lists itself
            hidden = {name: getattr(self, name) for name in self._tracked}
            hidden["seeds"] = [generator.state for generator in self._seed_generators]
            for path, part in keras.tree.flatten_with_path(hidden):
                if isinstance(part, tf.__internal__.tracking.Trackable):
                    children["-".join(map(str, path))] = part
        return children

    def get_build_config(self):
        """See `keras.layers.Layer`; also which sublayers are frozen or have adapters."""
        config = super().get_build_config()
        if config is None:
            return None
        below = [*_walk(self)]
        found = {
            "trainable": {p: layer.trainable for p, layer, of in below if layer.trainable != of},
            "adapters": {
                path: {"rank": layer.lora_rank, "lora_alpha": layer.lora_alpha}
                for path, layer, _ in below
                if getattr(layer, "lora_enabled", False)
            },
        }
        if found["adapters"]:  # which freeze single weights of a layer
            found["trainable_weights"] = [weight.trainable for weight in self.weights]
        return {**config, **{name: value for name, value in found.items() if value}}

    def build_from_config(self, config):
        """Build the layer, then add adapters and freeze what was frozen."""
        config = dict(config or {})
        trainable, adapters = config.pop("trainable", {}), config.pop("adapters", {})
        flags = config.pop("trainable_weights", ())
        super().build_from_config(config)
        for path, options in adapters.items():
            layer = _sublayer(self, path)
            if not layer.lora_enabled:  # a model inside a model adds them itself
                layer.enable_lora(**options)
        for path, value in trainable.items():
            layer = _sublayer(self, path)
            layer.trainable = not value  # Keras does not propagate a value that is already set
            layer.trainable = value
        if flags:
            for weight, value in zip(self.weights, flags, strict=True):
                weight.trainable = value


def _sublayer(layer, path):
    """The sublayer at a path of `_walk`."""
    for name in filter(None, path.split("/")):
        sublayers = _sublayers(layer)
        if name not in sublayers:
            expected = f"a sublayer of {type(layer).__name__} among {', '.join(sublayers)}"
            raise ArgumentError("trainable", expected, f"{path!r}")
        layer = sublayers[name]
    return layer


def _walk(layer, inherited=True, path=""):
    """Yield the path of a layer, the layer and whether its parent is trainable; then all below."""
    yield path, layer, inherited
    for name, sublayer in _sublayers(layer).items():
        yield from _walk(sublayer, layer.trainable, f"{path}/{name}" if path else name)


def _sublayers(layer):
    """The sublayers by attribute, such as `mha` or `enc_layers.1`, or else by number."""
    held = {id(sublayer): f"_layers.{n}" for n, sublayer in enumerate(layer._layers)}
    public = {name: value for name, value in vars(layer).items() if name[0] != "_"}
    for path, part in keras.tree.flatten_with_path(public):
        if id(part) in held:
            held[id(part)] = ".".join(map(str, path))
    return {held[id(sublayer)]: sublayer for sublayer in layer._layers}


class NotesLayer(WholeState):
    """Mixin that allows positional arguments, takes Keras masks and passes them on."""

    # `layer(x, True, mask)` means the same as `layer.call(x, True, mask)`: Keras accepts only
    # tensors by position, so each argument after the first is passed by its name in `call`.
    # The Keras mask of an argument `x`, False for padding, is passed to `call` as `x_mask`, if
    # `call` has that argument and the caller did not set it. The first output inherits the mask of
    # the first argument. `mask` is only what was passed as `mask`.

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
            got = f"a tensor of shape {tuple(kwargs['training'].shape)}"
            remedy = "Pass a mask by name: mask=..."
            raise ArgumentError("training", "a bool or None", got, remedy)
        for name in with_mask:
            tensor = args[0] if args and name == names[0] else kwargs.get(name)
            mask = getattr(tensor, "_keras_mask", None)
            if mask is not None and kwargs.get(f"{name}_mask") is None:
                # Keras would fill in `mask` if there is one tensor, and record it in a functional
                # model: the layer would then depend on the ids, not only on `x`. It records no mask
                # if there is any other keyword, and finds the mask again in each call.
                is_symbolic = isinstance(mask, keras.KerasTensor)
                kwargs[f"{name}_mask"] = None if is_symbolic else tf.cast(mask, tf.bool)
        outputs = super().__call__(*args[:1], **kwargs)
        return vars(self).pop("_result_with_none", outputs)

    def symbolic_call(self, *args, **kwargs):
        """Return the outputs that a functional model records: tensors only, as Keras requires."""
        # `__call__` returns the full result. A None must come after the tensors, as in
        # `(output, None)`: Keras finds the outputs of a recorded call by position.
        outputs = super().symbolic_call(*args, **kwargs)
        flat = tf.nest.flatten(outputs)
        tensors = [tensor for tensor in flat if tensor is not None]
        if len(tensors) == len(flat):
            return outputs
        vars(self)["_result_with_none"] = outputs  # not by assignment, which Keras tracks
        return tensors

    def _build_rest(self, shape):
        """Build the sublayers that are not built yet, all for inputs of one shape."""
        for layer in self._layers:
            if layer.path is None:  # not `built`, which Keras's dropout always is
                layer.build(shape)

    def compute_mask(self, inputs, previous_mask=None):  # Keras passes the argument `mask`
        """Return the Keras mask of the first argument."""
        return getattr(inputs, "_keras_mask", None)


@functools.cache
def _arguments(call):
    """Names of the positional arguments, and of the arguments whose Keras mask `call` accepts."""
    _, *parameters = inspect.signature(call).parameters.values()  # without `self`
    every = [parameter.name for parameter in parameters]
    names = [one.name for one in parameters if one.kind != inspect.Parameter.KEYWORD_ONLY]
    return names, [name for name in every if f"{name}_mask" in every]


class TakesIds:
    """Mixin that checks ids before the layer is built, and keeps Keras from casting them."""

    # In float16 the ids 2048 and 2049 are equal. Other inputs are cast by the layers that use them.

    ids_name = "ids"  # in error messages
    pad_id = 0  # of ragged ids, and in models what is blocked; None if there is no padding

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.autocast = False

    @property
    def input_dtype(self):
        """str, the dtype of the inputs in the signatures that Keras creates for export."""
        return "int32"

    def __call__(self, *args, **kwargs):
        if args:
            args = (self.as_inputs(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)

    def as_inputs(self, inputs):
        """Convert and check the first argument of `call`; overridden if it is not one tensor."""
        return as_ids(inputs, self.ids_name, self.pad_id)
