"""R-Drop: two passes with different dropout should agree.

Axes: B batch, T target length, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution.global_mean import global_mean
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.cross_entropy import symmetric_divergence
from tf_transformer.functional.labels import ignore_class_of, read_labels
from tf_transformer.models.base_model import BaseModel


@keras.saving.register_keras_serializable(package="tf_transformer")
class RDrop(BaseModel):
    """Trains a model on two dropout passes per batch and on their agreement.

    loss + alpha / 4 * (KL(P1 || P2) + KL(P2 || P1)), Liang et al. 2021 "R-Drop: Regularized Dropout
    for Neural Networks", equations 2 to 4, divided by 2: P1 and P2 are the predictions for the same
    row with different dropout, `loss` is the mean over both, and the divergences are averaged over
    the labels that count for the loss, see `SmoothedCrossentropy`. A step takes twice the time;
    validation, prediction and weight files are those of the inner model, so that training can be
    resumed with or without R-Drop.

    Args:
        model: a `keras.Model` that returns logits (B, T, V) or (B, V).
        alpha: float >= 0; the paper uses 5 for translation.

    Raises:
        ValueError: If `alpha` is below 0.

    Example:
        >>> inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model = RDrop(inner, alpha=5.0)
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> history = model.fit(np.ones((4, 2)), np.ones((4,), "int32"), verbose=0)
        >>> model.predict(np.ones((4, 2)), verbose=0).shape
        (4, 3)
    """

    def __init__(self, model, alpha=5.0, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # the model may take ids
        if not alpha >= 0:
            raise ArgumentError("alpha", "at least 0", alpha)
        self.model = model
        self.alpha = alpha

    @property
    def ignore_class(self):
        """The inner model's."""
        return getattr(self.model, "ignore_class", "auto")

    @property
    def input_signature(self):
        """The inner model's."""
        return getattr(self.model, "input_signature", None)

    def build(self, input_shape=None):
        if isinstance(self.model, BaseModel) and not self.model.built:
            self.model.build(input_shape)  # Keras builds others when it calls them

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def export(self, *args, **kwargs):
        self.model.export(*args, **kwargs)

    @property
    def _default_save_signature(self):
        return self.model._default_save_signature

    def save_weights(self, *args, **kwargs):
        self.model.save_weights(*args, **kwargs)

    def load_weights(self, *args, **kwargs):
        self.model.load_weights(*args, **kwargs)

    def train_step(self, data):
        return super().train_step(tf.nest.map_structure(_twice, data))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if not training:
            return loss
        divergence = symmetric_divergence(tf.cast(y_pred, tf.float32))
        labels = read_labels(y, y_pred, ignore_class_of(self.loss), sample_weight)
        real, weights = (tf.split(x, 2)[0] for x in (labels.real, labels.weights))
        divergence = tf.math.multiply_no_nan(divergence, weights)
        return loss + self.alpha / 4 * global_mean(divergence, real)

    def get_config(self):
        model = keras.saving.serialize_keras_object(self.model)
        return {**super().get_config(), "model": model, "alpha": self.alpha}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        model = keras.saving.deserialize_keras_object(config.pop("model"), custom_objects)
        return cls(model, **config)


def _twice(x):
    return None if x is None else tf.concat([x, x], 0)  # None: no sample weights
