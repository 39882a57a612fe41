"""Every public class, made small, with its numbers: what tests/test_copies.py copies.

Axes: B=2 batch, T=5 length, D=14 width, N=7 heads, F=11 feed-forward.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from layer_cases import CASES, SELF_LENGTHS, D, F, N, encoder_call, floats, ids
from layer_harness import Case

from tf_transformer import PooledModel, bert, layers, training
from tf_transformer.compression import Distiller
from tf_transformer.tokenizers import (
    BPETokenizer,
    ChatTemplate,
    UnigramTokenizer,
    WordPieceTokenizer,
)
from tf_transformer.training import (
    FusedAdam,
    GlobalLossScale,
    InverseSquareRootSchedule,
    LayerwiseAdamW,
    RDrop,
    SmoothedCrossentropy,
    WarmUpLinearDecay,
)

CONFIG = bert.BertConfig(
    vocab_size=13,
    hidden_size=D,
    num_hidden_layers=1,
    num_attention_heads=N,
    intermediate_size=F,
    max_position_embeddings=9,
    labels=("a", "b", "c"),
)
DEEP = dataclasses.replace(CONFIG, num_hidden_layers=2)
ELECTRA = dataclasses.replace(CONFIG, family="electra", embedding_size=5)
HIDDEN = ({"x": floats(2, 5, D)},)
# Parts of an `Architecture`, together in few encoders: by the name of the first one.
PARTS = {
    "AlibiPositions": ({}, "NoResidual", "FeedForward"),
    "LearnedPositions": ({"max_position": 9}, "PostNorm", "GatedFeedForward"),
    "NoPositions": ({}, "PreNorm", "MacaronFeedForward"),
    "RotaryPositions": ({}, "PostNorm", "FeedForward"),
    "ShawPositions": ({"max_distance": 2}, "PreNorm", "FeedForward"),
    "SinusoidalPositions": ({}, "PostNorm", "FeedForward"),
    "T5Positions": ({"num_buckets": 4, "max_distance": 5}, "PostNorm", "GatedFeedForward"),
}


def parts(name):
    settings, residual, feed_forward = PARTS[name]
    return layers.Architecture(
        getattr(layers, name)(**settings),
        residual=getattr(layers, residual)(),
        feed_forward=getattr(layers, feed_forward)(),
    )


def with_parts(name):
    return Case(
        lambda **kwargs: layers.Encoder(1, D, N, F, 13, 9, architecture=parts(name), **kwargs),
        tuple(encoder_call(*lengths) for lengths in SELF_LENGTHS[:1]),
    )


LAYERS = {
    **{name: case for name, case in CASES.items() if name in layers.__all__},
    **{name: with_parts(name) for name in PARTS},
    "NaiveBatchNorm": Case(layers.NaiveBatchNorm, HIDDEN),
    "BERTLayerNorm": Case(lambda **kwargs: bert.BERTLayerNorm(CONFIG, **kwargs), HIDDEN),
    "BERTSelfAttention": Case(lambda **kwargs: bert.BERTSelfAttention(CONFIG, **kwargs), HIDDEN),
}


def texts(length=5):
    mask = np.ones((2, length), np.int32)
    mask[0, length - 2 :] = 0
    tokens = np.random.default_rng(length).integers(1, 13, mask.shape, np.int32)
    return {"input_ids": tokens, "token_type_ids": np.zeros_like(tokens), "attention_mask": mask}


def of_texts(make):
    return Case(make, ({"inputs": texts()},))


def distiller(**kwargs):
    models = [bert.BertForSequenceClassification(CONFIG, **kwargs) for _ in range(2)]
    return Distiller(*models, hidden_states=1.0, **kwargs)


BERTS = (
    "Bert",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "SentenceEncoder",
    "UniLM",
)
MODELS = {
    "Transformer": CASES["Transformer"],
    "LanguageModel": CASES["LanguageModel"],
    **{
        name: of_texts(lambda kind=name, **kwargs: getattr(bert, kind)(CONFIG, **kwargs))
        for name in BERTS
    },
    "BertWithExits": of_texts(lambda **kwargs: bert.BertWithExits(DEEP, **kwargs)),
    "ElectraForPreTraining": of_texts(
        lambda **kwargs: bert.ElectraForPreTraining(ELECTRA, **kwargs)
    ),
    "PooledModel": of_texts(
        lambda **kwargs: PooledModel(
            dataclasses.replace(CONFIG, labels=()), dense=(5, "tanh", True), **kwargs
        )
    ),
    "TwoTowers": Case(
        lambda **kwargs: bert.TwoTowers(bert.SentenceEncoder(CONFIG, **kwargs), **kwargs),
        ({"inputs": (texts(), texts(4))},),
    ),
    "RDrop": Case(
        lambda **kwargs: RDrop(CASES["Transformer"].make(**kwargs), **kwargs),
        CASES["Transformer"].calls[:1],
    ),
    "Distiller": of_texts(distiller),
}


@dataclasses.dataclass(frozen=True)
class Item:
    """How to make an object, and what it computes."""

    make: Callable
    numbers: Callable


def stepped(optimizer):
    """The optimizer after a step on its own variable."""
    optimizer.build([keras.Variable(floats(3, 2), name="kernel")])
    optimizer.apply([tf.constant(floats(3, 2, 1)[..., 0])])
    return optimizer


def optimizer_numbers(optimizer):
    state = [variable.numpy() for variable in optimizer.variables]
    again = type(optimizer).from_config(optimizer.get_config())
    return state, [variable.numpy() for variable in stepped(again).variables]


def metric(kind):
    def make():
        metric = kind()
        metric.update_state(*LABELS)
        return metric

    return Item(make, lambda metric: float(metric.result()))


# Without labels yet: what a copy starts with, as Keras's metrics do.
METRICS = {"MaskedAccuracy": 0.0, "TokenCrossentropy": np.nan, "Perplexity": np.nan}
TEXTS = ["hello world", "hello </s>", "[SEP] 好"] * 3
LABELS = ids(2, 5), floats(2, 5, 13)


def tokenizer(kind, **arguments):
    return Item(
        lambda: kind.train(TEXTS, vocab_size=300, **arguments),
        lambda made: [made.encode(TEXTS), made.decode(made.encode(TEXTS))],
    )


def schedule(make):
    return Item(make, lambda made: [float(made(step)) for step in (0, 3, 7, 90)])


def optimizer(make):
    return Item(lambda: stepped(make()), optimizer_numbers)


OTHERS = {
    "SmoothedCrossentropy": Item(
        lambda: SmoothedCrossentropy(0.2), lambda loss: loss(*LABELS).numpy()
    ),
    **{name: metric(getattr(training, name)) for name in METRICS},
    "FusedAdam": optimizer(lambda: FusedAdam(0.1, clipnorm=1.0)),
    "LayerwiseAdamW": optimizer(lambda: LayerwiseAdamW(0.1, layer_decay=0.5)),
    "GlobalLossScale": optimizer(lambda: GlobalLossScale(FusedAdam(0.1), initial_scale=8.0)),
    "InverseSquareRootSchedule": schedule(lambda: InverseSquareRootSchedule(8, 5)),
    "WarmUpLinearDecay": schedule(lambda: WarmUpLinearDecay(0.5, 5, 50)),
    "BPETokenizer": tokenizer(BPETokenizer),
    "UnigramTokenizer": tokenizer(UnigramTokenizer),
    "WordPieceTokenizer": tokenizer(WordPieceTokenizer),
    "ChatTemplate": Item(
        lambda: ChatTemplate("{{ bos_token }}{{ messages[0].role }}", {"bos_token": "<s>"}),
        lambda made: made.render([{"role": "user"}]),
    ),
    "Architecture": Item(lambda: parts("T5Positions"), lambda made: made.to_json()),
    "BertConfig": Item(lambda: CONFIG, lambda made: made.to_dict()),
}

CASED = LAYERS | MODELS
ITEMS = OTHERS | {
    name: Item(
        lambda name=name, case=case: case.built(name=name),
        lambda layer, case=case: case.apply(layer, case.tensors()),
    )
    for name, case in CASED.items()
}


def together(layers):
    """A functional model of layers by their name in `CASED`: one file, one export, one process."""
    inputs, outputs = {}, {}
    for name, layer in layers.items():
        mine = iter(tf.nest.flatten(CASED[name].signature()))
        flat = [
            keras.Input(tuple(spec.shape[1:]), name=f"{name}_{n}", dtype=spec.dtype.name)
            for n, spec in enumerate(mine)
        ]
        inputs |= {tensor.name: tensor for tensor in flat}
        arguments = tf.nest.pack_sequence_as(CASED[name].signature(), flat)
        flat = CASED[name].apply(layer, arguments)
        outputs |= {f"{name}_{n}": tensor for n, tensor in enumerate(flat)}
    return keras.Model(inputs, outputs)


def inputs_together(names):
    return {
        f"{name}_{n}": array
        for name, case in CASED.items()
        if name in names
        for n, array in enumerate(tf.nest.flatten(case.calls[0]))
    }


def by_name(outputs):
    """The outputs of `together` as a list for each layer."""
    found = {}
    for key in sorted(outputs, key=lambda key: int(key.split("_")[-1])):
        found.setdefault(key.rpartition("_")[0], []).append(outputs[key])
    return found
