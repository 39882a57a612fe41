"""Distillation: a student learns from the predictions and layers of a teacher.

Axes: B batch, T length, N heads, D width, C classes or vocabulary.
"""

from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.data.files import write_json
from tf_transformer.distribution import global_mean
from tf_transformer.errors import ArgumentError, check, check_fields, check_texts
from tf_transformer.functional.labels import (
    ignore_class_of,
    label_weights,
    read_labels,
    real_labels,
    softened_divergence,
)
from tf_transformer.json_text import parse_json
from tf_transformer.models.base_model import BaseModel
from tf_transformer.models.bert.bert import Bert, dense_inputs
from tf_transformer.models.bert.heads import BertForSequenceClassification


def soft_target_loss(logits, teacher_logits, temperature=1.0, mask=None, weights=None):
    """Mean `softened_divergence`; for the tokens of a translation, Kim and Rush 2016, 3.1."""
    return _mean(softened_divergence(logits, teacher_logits, temperature), mask, weights)


def hidden_state_loss(states, teacher_states, mask=None, weights=None):
    """Mean squared difference of hidden states, Jiao et al. 2020, "TinyBERT", equation 8."""
    width = teacher_states.shape[-1]
    if states.shape[-1] != width:  # a narrower student's states are projected first
        raise ArgumentError("states", f"the teacher's width, {width}", states.shape[-1])
    states, teacher_states = (tf.cast(x, tf.float32) for x in (states, teacher_states))
    each = tf.reduce_mean(tf.math.squared_difference(states, teacher_states), -1)
    return _mean(each, mask, weights)


def attention_loss(attention, teacher_attention, mask=None, weights=None):
    """Mean KL(teacher || student) of all heads' attention, Wang et al. 2020, "MiniLM", eq. 6."""
    # TinyBERT's equation 7 compares scores before the softmax, which the core does not return.
    heads, own = teacher_attention.shape[1], attention.shape[1]
    check(own == heads, "attention", f"the teacher's number of heads, {heads}", own)
    attention, teacher_attention = (tf.cast(x, tf.float32) for x in (attention, teacher_attention))
    # x log x is 0 for a blocked key, where the student's weight is 0 too.
    each = tf.math.xlogy(teacher_attention, teacher_attention)
    each -= teacher_attention * tf.math.log(tf.maximum(attention, 1e-9))
    return _mean(tf.reduce_mean(tf.reduce_sum(each, -1), 1), mask, weights)


def _mean(each, mask, weights):
    """The mean over what a mask leaves; as in Keras, weights do not change the divisor."""
    mask = tf.broadcast_to(1.0 if mask is None else tf.cast(mask, tf.float32), tf.shape(each))
    counted = mask if weights is None else mask * label_weights(weights, mask)
    return global_mean(tf.math.multiply_no_nan(each, counted), mask)


def distilled_pairs(translate, sources, folder, *, part_size=1000, progress=None):
    """Return a teacher's translations as training pairs for a student, translating missing ones.

    Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2: the student is trained
    on the teacher's beam search output instead of the references. After an interruption, the same
    call resumes. Use a folder for one teacher only, since the files do not name the teacher.
    Returns a list of `(source, translation)`, without empty translations.

    Args:
        translate: function, list of str -> list of str of the same length, such as a `Translator`
            with `translate_texts`.
        sources: list of str, of the training pairs or any other text in the source language.
        folder: str or Path, created if missing.
        part_size: int, sources per file; an interruption loses the work on one file.
        progress: None, or a function called with the number of finished sources.

    Raises:
        ValueError: If `part_size` is below 1, `sources` is one string, the folder has translations
            of other sources, or `translate` returns a different number of texts.

    Example:
        >>> distilled_pairs(lambda texts: [t.upper() for t in texts], ["a", "b"], "distilled")
        [('a', 'A'), ('b', 'B')]
    """
    check(part_size >= 1, "part_size", "at least 1", part_size)
    check_texts("sources", sources)
    sources, pairs = list(sources), []
    for first in range(0, len(sources), part_size):
        part = sources[first : first + part_size]
        pairs += _part(translate, part, Path(folder) / f"{first:09d}.json")
        if progress is not None:
            progress(first + len(part))
    return [(source, translation) for source, translation in pairs if translation]


def _part(translate, sources, path):
    """Return the pairs of a file, which is written if missing."""
    if path.is_file():
        try:
            pairs = parse_json(path.read_bytes())
        except ValueError:  # damaged
            pairs = []
        if [source for source, _ in pairs] != sources:
            remedy = "Choose another folder, or delete it to translate again."
            expected = f"translations of these sources in {path}"
            raise ArgumentError("folder", expected, "others", remedy)
        return pairs
    translations = translate(sources)
    if len(translations) != len(sources):
        raise ArgumentError("translate", f"{len(sources)} translations", len(translations))
    pairs = list(zip(sources, translations, strict=True))
    write_json(path, pairs)
    return pairs


@keras.saving.register_keras_serializable(package="tf_transformer")
class Distiller(BaseModel):
    """Trains a student on the labels and on a teacher's outputs for the same inputs.

    (1 - soft_targets) * loss + soft_targets * soft_target_loss + hidden_states * hidden_state_loss
    + attention * attention_loss, see these functions in `compression.distiller`. `compile` and
    `fit` it like the student; `evaluate`, `predict` and weight files are the student's. Sample
    weights count in every term. The teacher runs without dropout and does not change.

    Args:
        student, teacher: built models with the same inputs: two BERT models, or two models that
            return logits over the same classes, such as `Transformer` (word-level distillation).
        temperature: float above 0, softens both predictions.
        soft_targets: float in [0, 1], weight of the teacher's predictions relative to the labels;
            with 1, or for `Bert`, which has no predictions, no labels are needed.
        hidden_states, attention: float >= 0, weights of these losses, for BERT models.
        layer_map: None to spread the student's layers evenly over the teacher's; or dict, student
            layer -> teacher layer, from 1; layer 0 is the embeddings. Jiao et al. 2020, "TinyBERT",
            section 3.1.

    Call arguments:
        inputs, training: see the student, whose outputs are returned.

    Raises:
        ValueError: If a number is out of range, a layer does not exist, the student has more layers
            than its teacher and no `layer_map`, `hidden_states` or `attention` is used for models
            other than BERT, `attention` for layers with different numbers of heads, or
            `soft_targets` for models without a softmax, such as a regression.

    Example:
        >>> from tf_transformer.bert import BertConfig, BertForSequenceClassification
        >>> student, teacher = (
        ...     BertForSequenceClassification(BertConfig(13, 8, layers, 2, 16, labels=("a", "b")))
        ...     for layers in (2, 4)
        ... )
        >>> Distiller(student, teacher, hidden_states=1.0).layer_map
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
        self.autocast = False  # inputs may be ids
        self.temperature, self.soft_targets = temperature, soft_targets
        self.hidden_states, self.attention = hidden_states, attention
        check_fields(
            self,
            ("temperature", "a number above 0", temperature > 0),
            ("soft_targets", "a number in [0, 1]", 0 <= soft_targets <= 1),
            ("hidden_states", "at least 0", hidden_states >= 0),
            ("attention", "at least 0", attention >= 0),
        )
        for model in (student, teacher):
            is_classifier = isinstance(model, BertForSequenceClassification)
            if soft_targets and is_classifier and model.config.answers != "softmax":
                got = f"{soft_targets} for one with problem_type={model.config.problem_type!r} "
                got += f"and labels={model.config.labels}"
                raise ArgumentError("soft_targets", "0 for a model without a softmax", got)
            if not model.built:
                model.build()
        self.student = student
        self._teacher = (lambda: teacher,)  # a model as an attribute would be trained and saved
        self.layer_map, self.projection = None, None
        if hidden_states or attention:
            self._map_layers(student, teacher, layer_map)

    def _map_layers(self, student, teacher, layer_map):
        models = student, teacher
        if not all(isinstance(m, Bert) or (hasattr(m, "head") and m.has_labels) for m in models):
            expected = "0, or Bert or a BERT classifier as student and teacher"
            got = " and ".join(type(model).__name__ for model in models)
            raise ArgumentError("hidden_states, attention", expected, got)
        ours, theirs = student.config, teacher.config
        layers, most = ours.num_hidden_layers, theirs.num_hidden_layers
        if layer_map is None:
            expected = "a dict, since the student has more layers than its teacher"
            check(layers <= most, "layer_map", f"{expected}, {layers} and {most}", "None")
            layer_map = {n: round(n * most / layers) for n in range(layers + 1)}
        for layer, taught_by in layer_map.items():
            if layer not in range(layers + 1) or taught_by not in range(most + 1):
                expected = f"layers of the student from 0 to {layers} and of the teacher from 0 to"
                raise ArgumentError("layer_map", f"{expected} {most}", layer_map)
            heads = (
                config.size_of(config.group_of(n - 1))[0]
                for config, n in ((ours, layer), (theirs, taught_by))
            )
            if self.attention and layer and taught_by and len(set(heads)) > 1:
                places = f"the student's layer {layer} as in the teacher's layer {taught_by}"
                expected, got = f"as many heads in {places}", "different numbers"
                raise ArgumentError("attention", expected, got, "Set attention to 0.")
        self.layer_map = dict(layer_map)
        if ours.hidden_size != theirs.hidden_size:
            settings = {"use_bias": False, "name": "projection", "dtype": self.dtype_policy}
            self.projection = keras.layers.Dense(theirs.hidden_size, **settings)
            self.projection.build((None, ours.hidden_size))

    @property
    def ignore_class(self):
        """The student's."""
        return getattr(self.student, "ignore_class", "auto")

    def build(self, input_shape=None):
        """Do nothing: the student is already built."""

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)

    def get_config(self):
        models = {"student": self.student, "teacher": self._teacher[0]()}
        numbers = ("temperature", "soft_targets", "hidden_states", "attention")
        return {
            **super().get_config(),
            **{name: keras.saving.serialize_keras_object(model) for name, model in models.items()},
            **{name: getattr(self, name) for name in numbers},
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
        """Run one step of `fit`."""
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
        logits, loss, tokens, rows = found["logits"], 0.0, _tokens(x), None
        expected = "one tensor of logits from the student"
        check(not isinstance(logits, dict), "student", expected, "a dict")
        if y is not None:  # which rows do not only fill up a batch, see `pad_labels`
            rows = real_labels(y, None)
            rows = tf.reduce_max(tf.reshape(rows, (tf.shape(rows)[0], -1)), axis=1, keepdims=True)
        if logits is not None and self.soft_targets < 1:
            loss += (1 - self.soft_targets) * self.compute_loss(x, y, logits, sample_weight)
        if logits is not None and self.soft_targets:
            mask = tokens
            if logits.shape.rank == 2:
                mask = None if rows is None else rows[:, 0]
            elif tokens is None and y is not None:
                mask = read_labels(y, logits, ignore_class_of(self.loss)).real
            given = logits, taught["logits"], self.temperature, mask, sample_weight
            loss += self.soft_targets * soft_target_loss(*given)
        if rows is not None:
            tokens = rows if tokens is None else tokens * rows
        for layer, taught_by in (self.layer_map or {}).items():
            if self.hidden_states:
                states = found["hidden_states"][layer]
                states = states if self.projection is None else self.projection(states)
                both = states, taught["hidden_states"][taught_by]
                loss += self.hidden_states * hidden_state_loss(*both, tokens, sample_weight)
            if self.attention and layer and taught_by:
                both = found["attentions"][layer - 1], taught["attentions"][taught_by - 1]
                loss += self.attention * attention_loss(*both, tokens, sample_weight)
        return loss


def _outputs(model, x, training, deep):
    """Return logits, or None, and with `deep` the hidden states and attention weights."""
    if not deep and not isinstance(model, Bert):
        return {"logits": model(x, training=training)}
    options = {"training": training, "return_hidden_states": deep, "return_attentions": deep}
    if isinstance(model, Bert):
        return {**model(x, **options), "logits": None}
    outputs = model.bert(x, **options)
    return {**outputs, "logits": model.head(outputs, training)}


def _tokens(x):
    """Return the mask of tokens in BERT's inputs, None or float (B, T)."""
    is_bert = isinstance(x, dict) and "input_ids" in x
    mask = dense_inputs(x).get("attention_mask") if is_bert else None
    return None if mask is None else tf.cast(tf.not_equal(mask, 0), tf.float32)
