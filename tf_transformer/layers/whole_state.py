"""State of a layer that Keras leaves out of checkpoints and files."""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError


class WholeState:
    """Mixin of a layer whose copies have all of its state.

    Keras 3.15 hides two things from `tf.train.Checkpoint`: layers in lists and dicts, and the
    states of random generators. Here it sees both. Saved as `.keras`, a layer also keeps which of
    its sublayers are frozen, of which Keras only keeps those of functional models.
    """

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
        """See `keras.layers.Layer`; `trainable` has the sublayers that differ from their parent."""
        config = super().get_build_config()
        trainable = _differences(self, True)
        return config if config is None or not trainable else {**config, "trainable": trainable}

    def build_from_config(self, config):
        """Build the layer, then freeze what was frozen."""
        config = dict(config or {})
        trainable = config.pop("trainable", {})
        super().build_from_config(config)
        for path, value in trainable.items():
            layer = self
            for name in filter(None, path.split("/")):
                sublayers = _sublayers(layer)
                if name not in sublayers:
                    raise ArgumentError(
                        "trainable",
                        (f"a sublayer of {type(layer).__name__} among {', '.join(sublayers)}"),
                        f"{path!r}",
                    )
                layer = sublayers[name]
            layer.trainable = not value  # Keras does not hand on a value that is there already
            layer.trainable = value


def _differences(layer, inherited, path=""):
    """Which layers are trainable other than the one they belong to: dict, path to bool."""
    found = {path: layer.trainable} if layer.trainable != inherited else {}
    for name, sublayer in _sublayers(layer).items():
        below = f"{path}/{name}" if path else name
        found |= _differences(sublayer, layer.trainable, below)
    return found


def _sublayers(layer):
    """The sublayers by attribute, as in `mha` or `enc_layers.1`, or else by number."""
    held = {id(sublayer): f"_layers.{n}" for n, sublayer in enumerate(layer._layers)}
    attributes = {name: value for name, value in vars(layer).items() if name[0] != "_"}
    for path, part in keras.tree.flatten_with_path(attributes):
        if id(part) in held:
            held[id(part)] = ".".join(map(str, path))
    return {held[id(sublayer)]: sublayer for sublayer in layer._layers}
