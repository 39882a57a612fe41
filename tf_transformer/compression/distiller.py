"""Trains a student to imitate a teacher, with `fit`.

Axes: B batch, T length, D width, C classes or vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.compression.transfer_losses import (
    attention_loss,
    hidden_state_loss,
    soft_target_loss,
)
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.labels import ignore_class_of, read_labels
from tf_transformer.models.base_model import BaseModel
from tf_transformer.models.bert.bert import Bert
from tf_transformer.models.bert.bert_for_sequence_classification import (
    BertForSequenceClassification,
)
from tf_transformer.models.bert.pretrained_bert import dense_inputs


@keras.saving.register_keras_serializable(package="tf_transformer")
class Distiller(BaseModel):
    """Trains a student on the labels and on what a teacher makes of the same inputs.

    (1 - soft_targets) * loss + soft_targets * soft_target_loss + hidden_states * hidden_state_loss
    + attention * attention_loss, see `compression.transfer_losses`. `compile` and `fit` it like the
    student; `evaluate`, `predict` and weight files are the student's. The teacher runs without
    dropout and does not change.

    Args:
        student, teacher: built models with the same inputs: two BERT models, or two models that
            return logits over the same classes, such as `Transformer` (word-level distillation).
        temperature: float above 0, softens both predictions.
        soft_targets: float in [0, 1], how much the teacher's predictions count, and how little the
            labels; with 1, or for `Bert`, which has no predictions, no labels are needed.
        hidden_states, attention: float >= 0, weights of these losses, for BERT models.
        layer_map: None to spread the student's layers over the teacher's; or dict, student layer
            -> teacher layer, from 1; layer 0 are the embeddings. Jiao et al. 2020, "TinyBERT",
            section 3.1.

    Call arguments:
        inputs, training: those of the student.

    Returns:
        What the student returns.

    Raises:
        ValueError: If a number is out of range, a layer does not exist, the student has more layers
            than its teacher and no `layer_map`, hidden states or attention are wanted of models
            other than BERT, attention of different numbers of heads, or soft targets of models
            that give no softmax, such as a regression.

    Example:
        >>> from tf_transformer.bert import BertConfig, BertForSequenceClassification
        >>> small, large = (
        ...     BertConfig(13, width, layers, 2, 16, labels=("a", "b"))
        ...     for width, layers in ((6, 2), (8, 4))
        ... )
        >>> student, teacher = map(BertForSequenceClassification, (small, large))
        >>> distiller = Distiller(student, teacher, hidden_states=1.0, attention=1.0)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> distiller.compile(keras.optimizers.Adam(), loss)
        >>> x = {"input_ids": np.ones((4, 3), "int32")}
        >>> history = distiller.fit(x, np.zeros(4, "int32"), verbose=0)
        >>> distiller.layer_map
        {0: 0, 1: 2, 2: 4}
    """

    def __init__(
        self,
        student,
        teacher,
        *,
        temperature=1.0,
        soft_targets=0.5,
        hidden_states=0.0,
        attention=0.0,
        layer_map=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.autocast = False  # the model may take ids
        if not temperature > 0:
            raise ArgumentError("temperature", "a number above 0", temperature)
        if not 0 <= soft_targets <= 1:
            raise ArgumentError("soft_targets", "a number in [0, 1]", soft_targets)
        for name, weight in (("hidden_states", hidden_states), ("attention", attention)):
            if not weight >= 0:
                raise ArgumentError(name, "at least 0", weight)
        for model in (student, teacher):
            is_classifier = isinstance(model, BertForSequenceClassification)
            if soft_targets and is_classifier and model.config.answers != "softmax":
                raise ArgumentError(
                    "soft_targets",
                    "0 for a model whose answers are no softmax",
                    (
                        f"{soft_targets} for one with problem_type={model.config.problem_type!r} "
                        f"and labels={model.config.labels}"
                    ),
                )
        for model in (student, teacher):
            if not model.built:
                model.build()
        self.student = student
        self._teacher = (lambda: teacher,)  # a model as an attribute would be trained and saved
        self.temperature = temperature
        self.weights_of_losses = soft_targets, hidden_states, attention
        self.layer_map, self.projection = None, None
        if hidden_states or attention:
            self._map_layers(student, teacher, layer_map)

    def _map_layers(self, student, teacher, layer_map):
        if not all(
            isinstance(model, Bert) or hasattr(model, "head") for model in (student, teacher)
        ):
            raise ArgumentError(
                "hidden_states, attention",
                "0, or Bert or a BERT classifier as student and teacher",
                f"{type(student).__name__} and {type(teacher).__name__}",
            )
        ours, theirs = student.config, teacher.config
        layers, most = ours.num_hidden_layers, theirs.num_hidden_layers
        if layer_map is None:
            if layers > most:
                raise ArgumentError(
                    "layer_map",
                    (
                        f"a dict, since the student has more layers than its teacher, {layers} "
                        f"and {most}"
                    ),
                    "None",
                )
            layer_map = {n: round(n * most / layers) for n in range(layers + 1)}
        for layer, taught_by in layer_map.items():
            if layer not in range(layers + 1) or taught_by not in range(most + 1):
                raise ArgumentError(
                    "layer_map",
                    (
                        f"layers of the student from 0 to {layers} and of the teacher from 0 "
                        f"to {most}"
                    ),
                    layer_map,
                )
        if self.weights_of_losses[2]:
            for layer, taught_by in layer_map.items():
                heads = (
                    config.size_of(config.group_of(n - 1))[0]
                    for config, n in ((ours, layer), (theirs, taught_by))
                )
                if layer and taught_by and len(set(heads)) > 1:
                    raise ArgumentError(
                        "attention",
                        (
                            f"as many heads in the student's layer {layer} as in the "
                            f"teacher's layer {taught_by}"
                        ),
                        "other numbers",
                        "Set attention to 0.",
                    )
        self.layer_map = dict(layer_map)
        if ours.hidden_size != theirs.hidden_size:
            self.projection = keras.layers.Dense(
                theirs.hidden_size, use_bias=False, name="projection", dtype=self.dtype_policy
            )
            self.projection.build((None, ours.hidden_size))

    @property
    def ignore_class(self):
        """The student's."""
        return getattr(self.student, "ignore_class", "auto")

    def build(self, input_shape=None):
        """The student was built before."""

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)

    def get_config(self):
        soft_targets, hidden_states, attention = self.weights_of_losses
        models = {"student": self.student, "teacher": self._teacher[0]()}
        return {
            **super().get_config(),
            **{name: keras.saving.serialize_keras_object(model) for name, model in models.items()},
            "temperature": self.temperature,
            "soft_targets": soft_targets,
            "hidden_states": hidden_states,
            "attention": attention,
            "layer_map": self.layer_map and list(self.layer_map.items()),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        models = [
            keras.saving.deserialize_keras_object(config.pop(name), custom_objects)
            for name in ("student", "teacher")
        ]
        layer_map = config.pop("layer_map")  # JSON would make its keys strings
        return cls(*models, layer_map=layer_map and dict(layer_map), **config)

    def export(self, *args, **kwargs):
        self.student.export(*args, **kwargs)

    @property
    def _default_save_signature(self):
        return self.student._default_save_signature

    def save_weights(self, *args, **kwargs):
        self.student.save_weights(*args, **kwargs)

    def load_weights(self, *args, **kwargs):
        self.student.load_weights(*args, **kwargs)

    def train_step(self, data):
        """One step of `fit`."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        deep = self.layer_map is not None
        taught = _outputs(self._teacher[0](), x, False, deep)
        with tf.GradientTape() as tape:
            found = _outputs(self.student, x, True, deep)
            loss = self._loss(x, y, sample_weight, found, taught)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        pairs = zip(gradients, variables, strict=True)
        # Without labels nothing trains the pooler.
        self.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        self._loss_tracker.update_state(loss)
        if found["logits"] is None:
            return {"loss": self._loss_tracker.result()}
        return self.compute_metrics(x, y, found["logits"], sample_weight)

    def _loss(self, x, y, sample_weight, found, taught):
        soft_targets, hidden_states, attention = self.weights_of_losses
        logits, loss, tokens = found["logits"], 0.0, _tokens(x)
        if logits is not None and soft_targets < 1:
            loss += (1 - soft_targets) * self.compute_loss(x, y, logits, sample_weight)
        if logits is not None and soft_targets:
            mask = tokens if logits.shape.rank == 3 else None
            if tokens is None and y is not None and logits.shape.rank == 3:
                mask = read_labels(y, logits, ignore_class_of(self.loss)).real
            loss += soft_targets * soft_target_loss(
                logits, taught["logits"], self.temperature, mask
            )
        for layer, taught_by in (self.layer_map or {}).items():
            if hidden_states:
                states = found["hidden_states"][layer]
                states = states if self.projection is None else self.projection(states)
                taught_states = taught["hidden_states"][taught_by]
                loss += hidden_states * hidden_state_loss(states, taught_states, tokens)
            if attention and layer and taught_by:
                weights = found["attentions"][layer - 1], taught["attentions"][taught_by - 1]
                loss += attention * attention_loss(*weights, tokens)
        return loss


def _outputs(model, x, training, deep):
    """Logits, or None, and with `deep` the hidden states and attention weights."""
    if not deep and not isinstance(model, Bert):
        return {"logits": model(x, training=training)}
    options = {"training": training, "return_hidden_states": deep, "return_attentions": deep}
    if isinstance(model, Bert):
        return {**model(x, **options), "logits": None}
    outputs = model.bert(x, **options)
    return {**outputs, "logits": model.head(outputs, training)}


def _tokens(x):
    """Which positions of BERT's inputs are tokens: None, or float (B, T)."""
    is_bert = isinstance(x, dict) and "input_ids" in x
    mask = dense_inputs(x).get("attention_mask") if is_bert else None
    return None if mask is None else tf.cast(tf.not_equal(mask, 0), tf.float32)
