"""The functions of a model that go into a LiteRT file.

Axes: B batch, T length, S source length, V vocabulary.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.plan import attention_plan
from tf_transformer.functional.tracing import portable
from tf_transformer.models.bert.bert_for_sequence_classification import (
    BertForSequenceClassification,
)
from tf_transformer.models.bert.classifier import answers_of
from tf_transformer.models.bert.sentence_encoder import SentenceEncoder
from tf_transformer.models.transformer import Transformer

_BERT_INPUTS = {
    name: tf.TensorSpec((None, None), tf.int32, name=name)
    for name in ("input_ids", "token_type_ids", "attention_mask")
}


class LiteFunctions(NamedTuple):
    """What a model becomes in a LiteRT file."""

    kind: str
    functions: dict
    facts: dict[str, Any]


def litert_functions(model):
    """Trace the functions of a model with operations that LiteRT has.

    Classifiers have `classify`, sentence encoders `encode`: ids, types and mask (B, T) in,
    answers or vectors out. Translators have `encode(ids, length)`, whose outputs are the
    state of decoding with room for so many tokens, and `step(token, ...)`, which takes the state
    under the names that `encode` gave it and returns it with `logits` (B, V).
    """
    kinds = {
        BertForSequenceClassification: _of_classifier,
        SentenceEncoder: _of_text_encoder,
        Transformer: _of_translator,
    }
    of_kind = kinds.get(type(model))
    if of_kind is None:
        raise ArgumentError(
            "model", f"one of {', '.join(kind.__name__ for kind in kinds)}", type(model).__name__
        )
    if not model.built:
        raise ArgumentError("model", "a built model", "one without weights", "Call build().")
    if model.compute_dtype != "float32" or any(w.dtype == "int8" for w in model.weights):
        raise ArgumentError(
            "model",
            "one in float32",
            f"{model.dtype_policy.name} or int8 weights",
            "Pass the original; weights_dtype sets the dtype in the file.",
        )
    return of_kind(model)


def _of_classifier(model):
    def classify(**inputs):
        return answers_of(model(inputs, training=False), model.config)

    facts = {"labels": model.config.labels, "answers": model.config.answers}
    return _of_bert("classifier", classify, model, facts)


def _of_text_encoder(model):
    def encode(**inputs):
        return {"vector": model(inputs, training=False)}

    return _of_bert("text encoder", encode, model, {})


def _of_bert(kind, function, model, facts):
    most = model.config.max_position_embeddings
    # LiteRT has no loops that write tiles, by which a window would be computed.
    with portable(most), attention_plan("whole"):
        traced = tf.function(function, autograph=False).get_concrete_function(**_BERT_INPUTS)
    return LiteFunctions(kind, {function.__name__: traced}, {"max_length": most, **facts})


def _of_translator(model):
    config = model.get_config()
    states = []  # what `start` returned, for its structure

    def encode(ids, length):
        states.append(model.start(ids, length))
        return _named(states[0])

    def step(token, **state):
        names = _named(states[0])
        state = tf.nest.pack_sequence_as(states[0], [state[name] for name in names])
        logits, state = model.step(token, state)
        return {"logits": logits, **_named(state)}

    longest = max(config["pe_input"], config["pe_target"])
    with portable(longest), attention_plan("whole"):
        encode = tf.function(encode, autograph=False).get_concrete_function(
            ids=tf.TensorSpec((None, None), tf.int32, name="ids"),
            length=tf.TensorSpec((), tf.int32, name="length"),
        )
        kept = {
            name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name)
            for name, tensor in encode.structured_outputs.items()
        }
        step = tf.function(step, autograph=False).get_concrete_function(
            token=tf.TensorSpec((None,), tf.int32, name="token"), **kept
        )
    facts = {"longest_source": config["pe_input"], "longest_target": config["pe_target"]}
    return LiteFunctions("translator", {"encode": encode, "step": step}, facts)


def _named(state):
    return {f"state_{n:02}": tensor for n, tensor in enumerate(tf.nest.flatten(state))}
