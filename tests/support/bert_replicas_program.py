"""Train BERT models on one device and on two replicas, and print the results as JSON.

`python bert_replicas_program.py FOLDER CASE...`: a line of JSON for each case. The two devices are
logical CPUs.

Axes: B texts, T length.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from small_pretraining import write_topics
from tiny_bert import WORDS, tiny_folder

from tf_transformer import bert
from tf_transformer.cli import main as command
from tf_transformer.training import SmoothedCrossentropy

# A replica has half of a batch of 4; with unequal parts, a Keras loss differs from the whole's.
B, T, SIZE, CLASSES = 8, 5, 8, 3
CONFIG = bert.BertConfig(
    29,
    SIZE,
    2,  # layers, the fewest for exits
    2,
    11,
    max_position_embeddings=T,
    labels=("a", "b", "c"),
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
RNG = np.random.default_rng(0)
X = {
    "input_ids": RNG.integers(1, 29, (B, T)),
    "token_type_ids": RNG.integers(0, 2, (B, T)),
    "attention_mask": np.int32(np.arange(T) < RNG.integers(1, T + 1, (B, 1))),
}
CLASS, TAG, WORD = (
    RNG.integers(0, n, shape) for n, shape in ((CLASSES, B), (CLASSES, (B, T)), (29, (B, T)))
)
POSITIONS = {**X, "masked_lm_positions": RNG.integers(0, T, (B, 2))}
STATES = RNG.normal(size=(B, T, SIZE)).astype(np.float32)


class Around(keras.Model):
    """A model of a user, which Keras builds with stand-ins in float32."""

    def __init__(self, config):
        super().__init__()
        self.bert = bert.Bert(config)
        self.top = keras.layers.Dense(CLASSES)

    def call(self, inputs, training=None):
        return self.top(self.bert(inputs, training=training)["pooled_output"])


def functional(config):
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in X}
    outputs = bert.BertForSequenceClassification(config)(inputs)
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(outputs))


def entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


CASES = {
    "Bert": (
        bert.Bert,
        X,
        {"sequence_output": STATES, "pooled_output": STATES[:, 0]},
        {"sequence_output": "mse", "pooled_output": "mse"},
    ),
    "BertForSequenceClassification": (bert.BertForSequenceClassification, X, CLASS, entropy()),
    "BertForTokenClassification": (bert.BertForTokenClassification, X, TAG, entropy()),
    "BertForNextSentencePrediction": (
        bert.BertForNextSentencePrediction,
        X,
        CLASS % 2,
        entropy(),
    ),
    "BertForQuestionAnswering": (
        bert.BertForQuestionAnswering,
        X,
        {"start_logits": WORD[:, 0] % T, "end_logits": WORD[:, 1] % T},
        {"start_logits": entropy(), "end_logits": entropy()},
    ),
    "BertForMaskedLM": (bert.BertForMaskedLM, POSITIONS, WORD[:, :2], entropy()),
    "BertForPreTraining": (
        bert.BertForPreTraining,
        POSITIONS,
        {"prediction_logits": WORD[:, :2], "seq_relationship_logits": CLASS % 2},
        {"prediction_logits": entropy(), "seq_relationship_logits": entropy()},
    ),
    "UniLM": (bert.UniLM, X, WORD, entropy()),
    "BertWithExits": (bert.BertWithExits, X, CLASS, entropy()),
    "SentenceEncoder": (bert.SentenceEncoder, X, STATES[:, 0], "mse"),
    "a model of a user": (Around, X, CLASS, entropy()),
    "a functional model": (functional, X, CLASS, entropy()),
}


def trained(strategy, make, x, y, loss):
    """The losses of two epochs, the loss and the outputs after them."""
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = make(CONFIG)
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    losses = model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]
    if make is not bert.BertForPreTraining:
        return losses
    after = np.ravel(model.evaluate(data, verbose=0))[0]
    outputs = tf.nest.flatten(model.predict(x, batch_size=4, verbose=0))[:1]
    return [*losses, after, *map(float, np.concatenate([np.ravel(part) for part in outputs]))]


def unequal(strategy):
    """The outputs after batches of 5 and 3 texts, which Keras's own build cannot average.

    Without losses: Keras weights the replicas' losses by rows, although they are shares.
    """
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = bert.BertForSequenceClassification(CONFIG)
        loss = SmoothedCrossentropy(label_smoothing=0.0)
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((X, CLASS)).batch(5)
    model.fit(data, epochs=2, shuffle=False, verbose=0)
    return np.ravel(model.predict(X, batch_size=B, verbose=0)).tolist()


def towers(strategy):
    """The losses on a batch, or on two replicas that have one such batch each."""
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = bert.TwoTowers(bert.SentenceEncoder(CONFIG))
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    ids = np.array([[1, 2], [3, 4]] * (2 if strategy else 1))
    data = tf.data.Dataset.from_tensors((({"input_ids": ids}, {"input_ids": ids + 5}),))
    return model.fit(data, epochs=2, verbose=0).history["loss"]


def commands(folder, name):
    """The exit code of a command, what it wrote, and its history."""
    data = folder / "data.tsv"
    data.write_text("".join(f"{'ab'[x in 'film']}\t{x} {y}\n" for x in WORDS for y in WORDS))
    text = write_topics(folder / "topics.txt", documents=60)
    tune = ("finetune", "--model", tiny_folder(folder / "model"), "--train", data)
    settings = ("--batch-size", "5", "--max-length", "9", "--epochs", "1", "--early-exit", "1")
    pretrain = ("pretrain", "--text", text, "--preset", "tiny", "--lengths", "16")
    words = {
        "finetune": (*tune, *settings),
        "pretrain": (*pretrain, "--vocab-size", "99", "--epochs", "1"),
    }[name]
    words = (*words, "--output", folder / name, "--distribute", "mirrored")
    printed, history = io.StringIO(), folder / name / "history.csv"
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = command([str(word) for word in words])
    return code, printed.getvalue(), history.exists() and history.read_text()


def main(folder, *names):
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})  # saves time
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for name in names:
        if name in ("finetune", "pretrain"):
            result = commands(folder, name)
        elif name in CASES:
            result = [trained(one, *CASES[name]) for one in (None, two)]
        else:
            result = [{"towers": towers, "unequal": unequal}[name](one) for one in (None, two)]
        print(json.dumps([name, result]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
