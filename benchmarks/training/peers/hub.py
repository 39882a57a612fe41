"""Training the same architecture, built from keras-hub's layers."""

import keras
import keras_hub
import tensorflow as tf

from benchmarks.training.peers.keras_fit import epoch_by_fit
from benchmarks.training.peers.steps import steps


class HubTransformer(keras.Model):
    """The encoder-decoder of 2017 from keras-hub's two kinds of layers, one embedding."""

    def __init__(self, sizes, rate):
        super().__init__()
        self.sizes = sizes
        width = sizes["width"]
        self.table = keras_hub.layers.ReversibleEmbedding(
            sizes["vocab"],
            width,
            tie_weights=True,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
        )
        self.positions = keras_hub.layers.SinePositionEncoding()
        self.dropout = keras.layers.Dropout(rate)
        options = {"dropout": rate, "layer_norm_epsilon": 1e-6}
        shape = (sizes["dff"], sizes["heads"])
        layers = range(sizes["layers"])
        self.encoders = [keras_hub.layers.TransformerEncoder(*shape, **options) for _ in layers]
        self.decoders = [keras_hub.layers.TransformerDecoder(*shape, **options) for _ in layers]

    def embed(self, ids, training=None):
        """Scaled embeddings with their positions."""
        x = self.table(ids) * self.sizes["width"] ** 0.5
        return self.dropout(x + self.positions(x), training=training)

    def encode(self, source, training=None):
        """Source ids to the encoder's output."""
        x = self.embed(source, training=training)
        for layer in self.encoders:
            x = layer(x, padding_mask=source != 0, training=training)
        return x

    def call(self, inputs, training=None):
        source, target = inputs
        memory = self.encode(source, training)
        y = self.embed(target, training=training)
        for layer in self.decoders:
            y = layer(y, memory, encoder_padding_mask=source != 0, training=training)
        return self.table(y, reverse=True)


@keras.saving.register_keras_serializable(package="benchmarks")
class SmoothedLoss(keras.losses.Loss):
    """Label smoothing for ids, which Keras has only for one-hot labels."""

    def call(self, labels, logits):
        logs = keras.ops.log_softmax(logits)
        label = keras.ops.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
        loss = -(0.9 * label + 0.1 * keras.ops.mean(logs, axis=-1))
        keep = keras.ops.cast(labels != 0, loss.dtype)
        return loss * keep / keras.ops.mean(keep)


def model(sizes, rate):
    """The built model."""
    made = HubTransformer(sizes, rate)
    made((tf.ones((1, 3), tf.int32), tf.ones((1, 2), tf.int32)))
    return made


def trainer(sizes, rate):
    """A function that trains on batches and returns their mean loss."""
    made = model(sizes, rate)
    made.compile(keras.optimizers.Adam(5e-4, 0.9, 0.98, 1e-9), SmoothedLoss(), jit_compile=False)
    return epoch_by_fit(made)


def variants(case, arrays):
    """Training steps."""
    return steps("keras-hub", trainer, case, arrays)
