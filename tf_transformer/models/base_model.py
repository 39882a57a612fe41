"""The base of all models: how they are trained, saved and exported; checks of their sizes."""

import contextlib
import copy
import gc
from pathlib import Path

import h5py
import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.layers.base_layer import WholeState
from tf_transformer.layers.positions import (
    LearnedPositions,
    Positional_Encoding,
    ShawPositions,
    T5Positions,
)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BaseModel(WholeState, keras.Model):
    """A `keras.Model` that creates its variables before training and saves only loadable files."""

    # `fit` creates all variables, including the optimizer's, before it traces a step. Otherwise
    # Keras creates missing variables in the first step, which TensorFlow then traces twice, and
    # each variable adds conditionals to the first trace: for a Transformer of 2 + 2 layers, this is
    # half of the time before training begins. Metrics given by name (`metrics=["accuracy"]`) still
    # create variables in the first step; metric objects do not.
    #
    # `input_signature` has `tf.TensorSpec`s in the structure of `inputs`, with which `export`
    # traces the model. If None, Keras builds the model in the first step. `ignore_class` is the
    # label that does not count in the model's task, see `SmoothedCrossentropy`.

    input_signature = None
    ignore_class = "auto"
    # An `Architecture`'s parts are copied, never built, so not all layers become built.
    _is_traced = False

    def compile(self, *args, **kwargs):
        """See `keras.Model`; losses and metrics with `ignore_class="auto"` use the model's."""

        def fitting(part):
            if self.ignore_class == "auto" or getattr(part, "ignore_class", None) != "auto":
                return part
            if isinstance(part, keras.losses.Loss):
                part = copy.copy(part)  # another model may share it
            part.ignore_class = self.ignore_class
            return part

        args, kwargs = tf.nest.map_structure(fitting, (args, kwargs))
        super().compile(*args, **kwargs)

    def compile_from_config(self, config):
        """Compile a loaded model, which Keras leaves to classes that override `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force=False):
        """Create the variables, then the function that `fit` and `train_on_batch` call."""
        self._build_first()
        if self._is_traced and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Build with the batch of one replica; Keras takes a mean, which ids do not have."""
        if iterator is not None and self._distribute_strategy is not None:
            local_results = self._distribute_strategy.experimental_local_results
            _, _, batches = next(iter(iterator))
            data_batch = tf.nest.map_structure(lambda x: local_results(x)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)

    def fit(self, *args, **kwargs):
        """See `keras.Model`; files that could not be loaded are refused before the first step."""
        callbacks = kwargs.get("callbacks", args[5] if len(args) > 5 else None)
        for callback in tf.nest.flatten(getattr(callbacks, "callbacks", callbacks)):
            saves = isinstance(callback, keras.callbacks.ModelCheckpoint)
            if saves and not callback.save_weights_only:
                _check_file(callback.filepath)
        return super().fit(*args, **kwargs)

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """Save as `.keras`, see `keras.Model`; other names and int8 weights raise a ValueError."""
        # Keras 3.15 writes HDF5 files of such models, but cannot read them.
        if zipped is not False and not str(filepath).startswith("hf://"):
            _check_file(filepath)
        self._check_float()
        super().save(filepath, overwrite, zipped, **kwargs)

    def save_own_variables(self, store):
        """See `keras.layers.Layer`; also called for weight files, `pickle` and `copy.deepcopy`."""
        self._check_float()
        super().save_own_variables(store)

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        """See `keras.Model`; further weights, which Keras would ignore, raise a ValueError."""
        is_whole = str(filepath).endswith(".weights.h5") and Path(filepath).is_file()
        if is_whole and self.built and not skip_mismatch:
            names = []
            with h5py.File(filepath) as file:
                file.visititems(lambda name, x: names.append(name) if hasattr(x, "shape") else None)
            found = sum(not name.startswith("optimizer/") for name in names)
            if found > len(self.weights):
                expected = f"the {len(self.weights)} weights of this model"
                remedy = "Create the model with the sizes of the saved one."
                raise ArgumentError("filepath", expected, f"{found} in {filepath}", remedy)
        super().load_weights(filepath, skip_mismatch, **kwargs)

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """See `keras.Model`; by default, ids are int32, of any batch size and length."""
        self._build_first()
        if input_signature is None:
            input_signature = [self.input_signature]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    @property
    def _default_save_signature(self):  # of `tf.saved_model.save`
        self._build_first()
        return tf.function(self.__call__, input_signature=[self.input_signature], autograph=False)

    def build_from_config(self, config):
        """Also build the layers that a subclass adds to a model, whose weights come next."""
        super().build_from_config(config)
        self._build_first()

    def _check_float(self):
        expected = "float weights, since Keras cannot read files and copies of a quantized model"
        check_float(self, "Save the original, and quantize it again.", expected)

    def _build_first(self):
        if self._is_traced or (self.input_signature is None and not self._has_built_layers()):
            return
        if not self.built:
            self.build()
        if not self._has_built_layers():
            specs = self.input_signature
            inputs = tf.nest.map_structure(lambda x: keras.KerasTensor(x.shape, x.dtype), specs)
            self.compute_output_spec(inputs)
        self._is_traced = True

    def _has_built_layers(self):
        return all(layer.built for layer in self._flatten_layers(include_self=False))


def _check_file(path):
    """Refuse all names but `.keras`."""
    remedy = f'For the weights alone use save_weights("{Path(path).stem}.weights.h5").'
    fits = str(path).endswith(".keras")
    check(fits, "filepath", 'a name that ends in ".keras"', f'"{path}"', remedy)


_MOST_SKIPPED = 2**26  # bytes of models that may be garbage
_skipped = 0


@contextlib.contextmanager
def short_collections(size):
    """Make garbage collections skip existing objects: new layers would start several long ones."""
    # `size` is that of the weights made in the block, in bytes. Later blocks skip them too, so a
    # program that only replaces models would never free one.
    global _skipped
    if _skipped > _MOST_SKIPPED:
        gc.collect()
        _skipped = 0
    _skipped += size + 2**22  # layers and their objects
    frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:  # the command line freezes its imports
            gc.unfreeze()


def check_pad_id(pad_id, vocab_size):
    """Return the id of padding after a check."""
    if type(pad_id) is not int or not 0 <= pad_id < vocab_size:
        raise ArgumentError("pad_id", f"an id in [0, {vocab_size})", f"{pad_id!r}")
    return pad_id


def check_padding(model):
    """Refuse a model whose padding has another id than 0."""
    pad_id = model.get_config().get("pad_id", 0)
    remedy = "Use `generate`, which takes ids and any padding."
    check(pad_id == 0, "model", "one whose padding is the id 0", pad_id, remedy)


def check_float(model, remedy, expected="weights in floating point"):
    """Refuse a model with int8 weights."""
    is_float = all(weight.dtype != "int8" for weight in model.weights)
    check(is_float, "model", expected, "int8", remedy)


def adapted_layers(model):
    """The layers of a model that have adapters, see `add_adapters`."""
    layers = dict.fromkeys(model._flatten_layers(include_self=False))
    return [layer for layer in layers if getattr(layer, "lora_enabled", False)]


def check_merged(model):
    """Refuse a model with adapters, where they would be lost."""
    count = len(adapted_layers(model))
    remedy = "Call merge_adapters(model), or save_adapters to keep them in files of their own."
    check(count == 0, "model", "a model without adapters", f"adapters in {count} layers", remedy)


_SLACK = 2**16  # numbers
_FREE = 2**24  # numbers of a table that is computed


def check_sizes(source, found, embedded, width, key_dim, layers, architecture=None):
    """Refuse sizes far beyond the weights in a file, before a model of them is built."""
    # Smaller differences are found when the shapes are compared.
    fewest = embedded + sum(
        count * width * (2 * heads * key_dim + inner) for count, heads, inner in layers
    )
    part = architecture and architecture.positions
    if isinstance(part, ShawPositions):
        fewest += 2 * part.max_distance * key_dim
    elif isinstance(part, T5Positions):
        fewest += part.num_buckets
    elif isinstance(part, LearnedPositions):
        fewest += part.max_position * width
    elif isinstance(part, Positional_Encoding):  # its table is not in the file
        fewest += max(part.max_position * width - _FREE, 0)
    if fewest > 4 * found + _SLACK:
        expected = f"the sizes of a model with at most {found:,} weights"
        got = f"the sizes of one with at least {fewest:,}"
        raise ArgumentError("path", expected, got, place=source)


def check_vocabulary(model, tokenizer, name="tokenizer"):
    """Check that a model has a row for each token; more rows are harmless."""
    rows, size = min(_sizes(model.get_config()).values()), tokenizer.vocab_size
    expected = f"at most {rows} tokens, as many as the model has rows of embeddings"
    remedy = "Use the vocabulary that the model was trained with; `with_vocab_size` makes a model "
    remedy += "for added tokens."
    check(size <= rows, name, expected, size, remedy)


def with_vocab_size(model, vocab_size, target_vocab_size=None):
    """Return a model with more rows of embeddings, for tokens that were added to its tokenizer.

    The new model has the old one's weights, and added rows like a new model's. Shared tables stay
    shared. The old model is unchanged; `compile` the new one before `fit`.

    Args:
        model: a built `Transformer`, `LanguageModel` or model of `tf_transformer.bert`.
        vocab_size: int, the size of the vocabulary (the source's of a `Transformer`),
            `tokenizer.vocab_size` or more; a multiple of 8 is faster on some devices.
        target_vocab_size: None, or int, for a `Transformer` whose target has another vocabulary.

    Returns:
        A built model of the same class.

    Raises:
        ValueError: If the model has no weights yet, int8 weights or no vocabulary, or a size is
            smaller than the model's.

    Example:
        >>> import tensorflow as tf
        >>> from tf_transformer import bert
        >>> model = bert.BertForMaskedLM(bert.BertConfig(13, 8, 2, 2, 16))
        >>> model.build()
        >>> larger = with_vocab_size(model, 15)
        >>> larger({"input_ids": tf.constant([[2, 14, 3]])}).shape.as_list()
        [1, 3, 15]
    """
    config = model.get_config()
    sizes = _sizes(config)
    expected = "a Transformer, a LanguageModel or a model of tf_transformer.bert"
    check(sizes, "model", expected, type(model).__name__)
    check(model.built, "model", "a built model", "one without weights", "Call build().")
    check_float(model, "Add the tokens before you quantize.")
    if target_vocab_size is not None and "target_vocab_size" not in sizes:
        expected = f"None for a {type(model).__name__}, which has one vocabulary"
        raise ArgumentError("target_vocab_size", expected, target_vocab_size)
    new = dict.fromkeys(sizes, vocab_size)
    if target_vocab_size is not None:
        new["target_vocab_size"] = target_vocab_size
    for name, size in sizes.items():
        if not isinstance(new[name], int) or new[name] < size:
            argument, remedy = name.removeprefix("input_"), "Every token must keep its row."
            expected = f"an integer of at least {size}, the model's"
            raise ArgumentError(argument, expected, f"{new[name]!r}", remedy)
    inner = {"config": {**config["config"], **new}} if "config" in config else new
    larger = type(model).from_config({**config, **inner})
    larger.build_from_config(model.get_build_config())  # also restores which layers are frozen
    for weight, old in zip(larger.weights, model.weights, strict=True):
        value = weight.numpy()
        value[tuple(map(slice, old.shape))] = old.numpy()
        weight.assign(value)
        weight.trainable = old.trainable
    return larger


def _sizes(config):
    """The sizes of the vocabularies in a model's config: dict of name -> int."""
    names = ("input_vocab_size", "target_vocab_size", "vocab_size")
    config = config.get("config", config)  # of BERT
    return {name: config[name] for name in names if name in config}
