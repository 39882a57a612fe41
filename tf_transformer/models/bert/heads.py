"""BERT with its heads: words, next sentence, classes of texts and tokens, spans, generation.

Axes: B batch, T length, M tokens, P masked positions, D hidden size, E width of the embeddings,
V vocabulary, C classes; in `UniLM` S source length, L maximum generated tokens, T = S + L.
"""

import contextlib

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.attention.masks import create_sequence_to_sequence_mask
from tf_transformer.functional.tensors import as_ids, in_vocabulary, times_transposed
from tf_transformer.layers.base_layer import NotesLayer
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.layers.residuals import Dropout
from tf_transformer.models.bert.bert import BertWithHead, dense_inputs
from tf_transformer.models.bert.bert_config import BertConfig


def classifier(num_classes, name, config):
    """Create a dense layer for logits, in float32 under any policy, since a softmax follows."""
    kernel = keras.initializers.TruncatedNormal(stddev=config.initializer_range)
    return keras.layers.Dense(num_classes, kernel_initializer=kernel, name=name, dtype="float32")


def inner_dense(units, activation, config, dtype):
    """Create the dense layer with an activation below the last one of a head."""
    kernel = keras.initializers.TruncatedNormal(stddev=config.initializer_range)
    options = {"kernel_initializer": kernel, "name": "dense", "dtype": dtype}
    return FlatDense(units, get_activation(activation), **options)


def classifier_dropout(config, dtype):
    """Create the dropout layer before a classifier."""
    rate = config.classifier_dropout
    return Dropout(config.hidden_dropout_prob if rate is None else rate, dtype=dtype)


def answers_of(logits, config):
    """Turn the logits (B, C) of a text classifier into answers, float32 (B, C)."""
    if config.answers == "linear":
        return {"values": logits}
    function = tf.nn.sigmoid if config.answers == "sigmoid" else tf.nn.softmax
    return {"probabilities": function(logits)}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertLMHead(NotesLayer, keras.layers.Layer):
    """LayerNorm(act(x W + b)) times the table of word embeddings, plus a bias per word."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config = BertConfig.of(config)
        activation, dtype = config.traits.word_activation or config.hidden_act, self.dtype_policy
        self.dense = inner_dense(config.embedding_width, activation, config, dtype)
        self.norm = LayerNorm(config.layer_norm_eps, name="LayerNorm", dtype=dtype)

    def build(self, rows_shape, table_shape=None):
        with keras.name_scope("transform"):
            self.dense.build((None, self.config.hidden_size))
            self.norm.build((None, self.config.embedding_width))
        self.output_bias = self.add_weight((self.config.vocab_size,), "zeros", name="output_bias")

    def call(self, rows, table):
        rows = self.norm(self.dense(rows))  # (M, E)
        logits = times_transposed(rows, tf.cast(table, rows.dtype))
        return tf.cast(logits, tf.float32) + tf.cast(self.output_bias, tf.float32)  # (M, V)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForMaskedLM(BertWithHead):
    """Logits of every word at every position, or at the requested positions.

    Devlin et al. 2019, section 3.1, task 1. Arguments and inputs: see `Bert`; with the input
    `masked_lm_positions`, integers (B, P), logits are only computed at these positions.

    Returns:
        float32 tensor (B, T, V) or (B, P, V), logits.

    Raises:
        ValueError: If the config has its own output layer, `tie_word_embeddings=False`.

    Example:
        >>> model = BertForMaskedLM(BertConfig(13, 8, 2, 2, 16))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 3, 13]
    """

    published_as = "BertForMaskedLM"
    head_scope = "cls/predictions/"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        name, tied = type(self).__name__, self.config.tie_word_embeddings
        expected = f"True for {name}, whose output layer is the table of word embeddings"
        remedy = "If the checkpoint has the same numbers in both, pass tie_word_embeddings=True."
        check(tied, "tie_word_embeddings", expected, "False", remedy)
        self.predictions = BertLMHead(self.config, name="predictions", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.predictions.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        inputs = dense_inputs(inputs)
        positions = inputs.pop("masked_lm_positions", None)
        outputs = self.bert(inputs, training=training)
        return self.word_logits(outputs["sequence_output"], positions)

    def word_logits(self, states, positions=None):
        """Compute the logits (B, T, V) from states (B, T, D), or (B, P, V) at positions (B, P)."""
        if positions is not None:
            positions = as_ids(positions, "masked_lm_positions")
            inside = (positions >= 0) & (positions < tf.shape(states, positions.dtype)[1])
            states = tf.gather(states, positions, batch_dims=1)
            # XLA raises no errors and would clamp the position.
            nan = tf.constant(float("nan"), states.dtype)
            states = tf.where(tf.expand_dims(inside, -1), states, nan)
        rows = tf.reshape(states, (-1, states.shape[-1]))
        logits = self.predictions(rows, self.bert.embeddings.word_embeddings)
        shape = tf.concat([tf.shape(states)[:2], [self.config.vocab_size]], 0)
        logits = tf.reshape(logits, shape)
        logits.set_shape((*states.shape[:2], self.config.vocab_size))
        return logits


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertWithDense(BertWithHead):
    """Base class with a dense layer on one output of `Bert`: a unit for each label, or two."""

    reads = "pooled_output"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        units = len(self.config.labels) if self.has_labels else 2
        self.dropout = self.new_dropout()
        # The attribute is named as the published variables: files of weights contain its name.
        self.dense_name = self.head_scope.split("/")[-2]
        setattr(self, self.dense_name, self.new_dense(units, self.dense_name))

    def new_dropout(self):
        """Create the dropout layer before the dense layer, or None."""
        return classifier_dropout(self.config, self.dtype_policy) if self.has_labels else None

    def new_dense(self, units, name):
        """Create the dense layer, or what a subclass has instead."""
        return classifier(units, name, self.config)

    def build(self, input_shape=None):
        super().build()
        is_in_cls = self.head_scope.startswith("cls/")
        with keras.name_scope("cls") if is_in_cls else contextlib.nullcontext():
            getattr(self, self.dense_name).build((None, self.config.hidden_size))

    def head(self, outputs, training=None):
        """Compute the logits from the outputs of `self.bert`."""
        x = outputs[self.reads]
        if self.dropout is not None:
            x = self.dropout(x, training=training)
        return getattr(self, self.dense_name)(x)

    def call(self, inputs, training=None):
        return self.head(self.bert(inputs, training=training), training)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForNextSentencePrediction(BertWithDense):
    """Predict whether the second segment follows the first.

    Devlin et al. 2019, section 3.1, task 2. Arguments and inputs: see `Bert`; the config must have
    a pooler, and `token_type_ids` mark the segments.

    Returns:
        float32 tensor (B, 2), logits: 0 = it follows, 1 = it is a random segment.

    Example:
        >>> model = BertForNextSentencePrediction(BertConfig(13, 8, 2, 2, 16))
        >>> ids, types = tf.constant([[2, 7, 3, 5, 3]]), tf.constant([[0, 0, 0, 1, 1]])
        >>> model({"input_ids": ids, "token_type_ids": types}).shape.as_list()
        [1, 2]
    """

    published_as = "BertForNextSentencePrediction"
    head_scope = "cls/seq_relationship/"
    pooler_use = "needed"
    families = (None,)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForPreTraining(BertForMaskedLM):
    """Predict masked words, and whether the second segment follows the first.

    Devlin et al. 2019, section 3.1, both tasks. Arguments and inputs: see `BertForMaskedLM`; the
    config must have a pooler.

    Returns:
        dict of float32 logits: `prediction_logits` (B, T, V) or (B, P, V), and
        `seq_relationship_logits` (B, 2): 0 = it follows, 1 = it is a random segment.

    Example:
        >>> model = BertForPreTraining(BertConfig(13, 8, 2, 2, 16))
        >>> logits = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> logits["seq_relationship_logits"].shape.as_list()
        [1, 2]
    """

    published_as = "BertForPreTraining"
    head_scope = "cls/"
    pooler_use = "needed"
    families = (None,)

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.seq_relationship = classifier(2, "seq_relationship", self.config)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("cls"):
            self.seq_relationship.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        inputs = dense_inputs(inputs)
        positions = inputs.pop("masked_lm_positions", None)
        outputs = self.bert(inputs, training=training)
        return {
            "prediction_logits": self.word_logits(outputs["sequence_output"], positions),
            "seq_relationship_logits": self.seq_relationship(outputs["pooled_output"]),
        }


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForQuestionAnswering(BertWithDense):
    """Predict where an answer starts and ends in a text.

    Devlin et al. 2019, section 4.2: the question is segment 0, the text segment 1. Arguments and
    inputs: see `Bert`.

    Returns:
        dict of float32 logits: `start_logits` (B, T) and `end_logits` (B, T).

    Example:
        >>> model = BertForQuestionAnswering(BertConfig(13, 8, 2, 2, 16))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])})["start_logits"].shape.as_list()
        [1, 3]
    """

    published_as = "BertForQuestionAnswering"
    head_scope = "cls/squad/"
    reads = "sequence_output"

    def new_dropout(self):
        """See `BertWithDense`; only DistilBERT has one here."""
        rate = self.config.qa_dropout
        return None if rate is None else Dropout(rate, dtype=self.dtype_policy)

    def call(self, inputs, training=None):
        start, end = tf.unstack(super().call(inputs, training), axis=-1)  # of (B, T, 2)
        return {"start_logits": start, "end_logits": end}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertClassificationHead(NotesLayer, keras.layers.Layer):
    """dropout(act(dropout(x) W + b)) W' + b' of the first token's vector (M, D): logits (M, C)."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config = BertConfig.of(config)
        activation, dtype = config.traits.classifier_activation, self.dtype_policy
        self.dropout = classifier_dropout(config, dtype)
        self.dense = inner_dense(config.hidden_size, activation, config, dtype)
        self.out_proj = classifier(len(config.labels), "out_proj", config)

    def build(self, input_shape):
        self.dense.build(input_shape)
        self.out_proj.build(input_shape)

    def call(self, x, training=None):
        if self.config.traits.classifier_drops_input:
            x = self.dropout(x, training=training)
        return self.out_proj(self.dropout(self.dense(x), training=training))

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForSequenceClassification(BertWithDense):
    """Predict the class of a text, or of a pair of texts.

    Dropout and a dense layer on the pooled output, Devlin et al. 2019, section 4.1; RoBERTa,
    DistilBERT and ELECTRA have a layer of their own in the place of the pooler. Arguments, inputs
    and errors: see `Bert`; the config must have `labels` and, for BERT, a pooler.

    Returns:
        float32 tensor (B, C), logits in the order of `config.labels`.

    Example:
        >>> model = BertForSequenceClassification(BertConfig(13, 8, 2, 2, 16, labels=("no", "yes")))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 2]
    """

    published_as = "BertForSequenceClassification"
    head_scope = "classifier/"
    pooler_use = "needed"
    has_labels = True

    @classmethod
    def pooler_use_with(cls, config):
        """See `PretrainedBert`; a head with a layer of its own has no pooler."""
        return "unused" if config.traits.classifier_activation else cls.pooler_use

    def new_dropout(self):
        """See `BertWithDense`; a head with a layer of its own has its own."""
        return None if self.config.traits.classifier_activation else super().new_dropout()

    def new_dense(self, units, name):
        """See `BertWithDense`."""
        if self.config.traits.classifier_activation:
            return BertClassificationHead(self.config, name=name, dtype=self.dtype_policy)
        return super().new_dense(units, name)

    def head(self, outputs, training=None):
        """See `BertWithHead`."""
        if self.config.traits.classifier_activation:
            return self.classifier(outputs["sequence_output"][:, 0], training=training)
        return super().head(outputs, training)


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertForTokenClassification(BertWithDense):
    """Predict a class for each token, for example named entities or parts of speech.

    Dropout and a dense layer on each token's vector, Devlin et al. 2019, section 5.3. Arguments,
    inputs and errors: see `Bert`; the config must have `labels`.

    Its labels are (B, T), from 0, and -100 where a token has none, as in Hugging Face's data.
    `compile` passes -100 to losses and metrics whose `ignore_class` is "auto"; Keras's need it.

    Returns:
        float32 tensor (B, T, C), logits in the order of `config.labels`.

    Example:
        >>> model = BertForTokenClassification(BertConfig(13, 8, 2, 2, 16, labels=("no", "yes")))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 3, 2]
    """

    published_as = "BertForTokenClassification"
    head_scope = "classifier/"
    has_labels = True
    reads = "sequence_output"
    ignore_class = -100

    def new_dropout(self):
        """See `BertWithDense`."""
        if self.config.family == "distilbert":  # whose `classifier_dropout` is of texts
            return Dropout(self.config.hidden_dropout_prob, dtype=self.dtype_policy)
        return super().new_dropout()


@keras.saving.register_keras_serializable(package="tf_transformer")
class ElectraForPreTraining(BertWithHead):
    """ELECTRA's discriminator: predict which tokens a generator replaced.

    act(x W + b) w + b' of each token's vector, Clark et al. 2020, "ELECTRA", section 2. Arguments,
    inputs and errors: see `Bert`; the `family` of the config must be "electra". The generator is a
    `BertForMaskedLM` of the same family.

    Returns:
        float32 tensor (B, T), logits: a token was replaced where its logit is above 0.

    Example:
        >>> model = ElectraForPreTraining(BertConfig(13, 8, 2, 2, 16, family="electra"))
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 3]
    """

    published_as = "ElectraForPreTraining"
    head_scope = "discriminator_predictions/"
    families = ("electra",)

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.dense = inner_dense(config.hidden_size, config.hidden_act, config, dtype)
        self.dense_prediction = classifier(1, "dense_prediction", config)

    def build(self, input_shape=None):
        super().build()
        with keras.name_scope("discriminator_predictions"):
            self.dense.build((None, self.config.hidden_size))
            self.dense_prediction.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        states = self.bert(inputs, training=training)["sequence_output"]  # (B, T, D)
        return self.dense_prediction(self.dense(states))[..., 0]


@keras.saving.register_keras_serializable(package="tf_transformer")
class UniLM(BertForMaskedLM):
    """A masked language model that was also trained with the sequence-to-sequence mask.

    Dong et al. 2019, "Unified Language Model Pre-training", section 2.3: each token of segment 1
    predicts the next. UniLM and the Chinese SimBERT are trained like this; other BERT models
    generate nonsense. See `create_sequence_to_sequence_mask`.

    Arguments and inputs: see `BertForMaskedLM`. The mask follows from `token_type_ids`, and an
    `attention_mask` (B, T) blocks padding; one of (B, T, T) or (B, 1 or N, T, T) is used unchanged.

    Example:
        >>> from tf_transformer.generation import greedy_decode
        >>> model = UniLM(BertConfig(13, 8, 2, 2, 16))
        >>> state = model.start(tf.constant([[2, 7, 3]]), max_length=4)
        >>> ids = greedy_decode(model.step, state, 1, start_id=3, end_id=3, max_length=4)
        >>> ids.shape.as_list()
        [1, 4]
    """

    families = (None,)

    def call(self, inputs, training=None):
        inputs = dense_inputs(inputs)
        if "token_type_ids" in inputs:
            inputs = {**inputs, "attention_mask": _free(**inputs)}
        return super().call(inputs, training=training)

    def start(self, inp, max_length):
        """Create the initial state for `step`, a dict of tensors; the first token is `[SEP]`.

        Args:
            inp: integer tensor (B, S), `[CLS] text [SEP]`, 0 = padding at the end.
            max_length: int or scalar int32 tensor L, the maximum number of steps.

        Raises:
            ValueError: If S + L is larger than the model's table of positions.
        """
        inp = in_vocabulary(as_ids(inp, "inp"), self.config.vocab_size, "inp")
        longest = self.config.max_position_embeddings
        if isinstance(max_length, int) and inp.shape[1] and inp.shape[1] + max_length > longest:
            shared = f"source and output share {longest} positions (max_position_embeddings)"
            expected = f"at most {longest - inp.shape[1]}, since {shared}"
            raise ArgumentError("max_length", expected, max_length)
        ids = tf.pad(tf.cast(inp, tf.int32), ((0, 0), (0, max_length)))  # (B, T)
        # The first step feeds the last token of the source.
        position = tf.reduce_sum(tf.cast(ids != 0, tf.int32), 1) - 1  # (B,)
        types, written = tf.zeros_like(ids), tf.constant(0)
        return {"ids": ids, "types": types, "position": position, "written": written}

    def step(self, tokens, state):
        """Append a token to each text, first the source's `[SEP]`: logits (B, V), and the state."""
        position = state["position"]  # (B,)
        here = tf.range(tf.shape(state["ids"])[1]) == tf.expand_dims(position, 1)  # (B, T)
        ids = tf.where(here, tf.expand_dims(tokens, 1), state["ids"])
        segment = tf.minimum(state["written"], 1)  # the source's [SEP] belongs to segment 0
        types = tf.where(here, segment, state["types"])
        seen = tf.sequence_mask(position + 1, tf.shape(ids)[1])  # (B, T), the tokens so far
        inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": _free(types, seen)}
        states = self.bert(inputs)["sequence_output"]
        logits = self.word_logits(states, tf.expand_dims(position, 1))[:, 0]
        position, written = position + 1, state["written"] + 1
        return logits, {"ids": ids, "types": types, "position": position, "written": written}


def _free(token_type_ids, attention_mask=None, **_):
    """Mask with True = may attend: bool (B, 1, T, T), or the given mask if it is not of rank 2."""
    padding = None if attention_mask is None else tf.convert_to_tensor(attention_mask)
    if padding is not None and padding.shape.rank != 2:
        return padding
    free = tf.equal(create_sequence_to_sequence_mask(token_type_ids), 0.0)
    if padding is None:
        return free
    return free & tf.cast(padding, tf.bool)[:, tf.newaxis, tf.newaxis]
