"""Train with several processes and with one on the same global batches, and compare every step.

`python workers_program.py KIND FOLDER COUNT STEPS`. Prints one line of JSON. KIND names a function.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.training.scale import free_ports

EPOCHS_AT_MOST = 99


def main(kind, folder, count, steps):
    alone = run(kind, folder / "alone", 1, steps)
    together = run(kind, folder / "together", count, steps)
    [expected], logs = read(alone), read(together)
    print(
        json.dumps(
            {
                "workers": count,
                "steps": len(expected["losses"]),
                "same on all": all(log["losses"] == logs[0]["losses"] for log in logs),
                "same weights on all": all(log["weights"] == logs[0]["weights"] for log in logs),
                "largest difference of a loss": largest(logs[0], expected, "losses"),
                "largest difference of an accuracy": largest(logs[0], expected, "accuracies"),
                "largest difference of a weight": largest(logs[0], expected, "weights"),
                "after an overflow": [log["after an overflow"] for log in (expected, *logs)],
                "first and last loss": [expected["losses"][0], expected["losses"][-1]],
            }
        )
    )


def run(kind, folder, count, steps):
    """Start the processes and wait: the files that they write."""
    folder.mkdir(parents=True)
    addresses = [f"localhost:{port}" for port in free_ports(count)]
    processes, files = [], []
    for index in range(count):
        file = folder / f"log-{index}.json"
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_NUM_INTRAOP_THREADS": "1"}
        if count > 1:
            environment["TF_CONFIG"] = json.dumps(config)
        call = [sys.executable, __file__, "worker", kind, str(folder), str(file), str(steps)]
        processes.append(subprocess.Popen(call, env=environment, stdout=subprocess.DEVNULL))
        files.append(file)
    for process in processes:
        if process.wait():
            raise SystemExit(f"a worker failed with {process.returncode}")
    return files


def read(files):
    return [json.loads(file.read_text()) for file in files]


def largest(one, other, key):
    pairs = zip(one[key], other[key], strict=True)
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in pairs)


def worker(kind, folder, file, steps):
    """One process: train, and write the losses and weights."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from tf_transformer.distribution import Workers, current_workers

    if "TF_CONFIG" in os.environ:
        Workers.start()
    import keras
    import numpy as np

    class Log(keras.callbacks.Callback):
        """Keeps the loss of every step, and stops after some."""

        def __init__(self):
            super().__init__()
            self.losses, self.accuracies, self.before = [], [], (0.0, 0.0)

        def on_epoch_begin(self, epoch, logs=None):
            self.before = 0.0, 0.0

        def on_train_batch_end(self, batch, logs=None):
            mean = self.model._loss_tracker  # of the epoch so far, weighted by rows
            now = float(mean.total.numpy()), float(mean.count.numpy())
            total, count = (new - old for new, old in zip(now, self.before, strict=True))
            self.losses.append(total / count)
            self.before = now
            if len(self.losses) == steps:
                self.model.stop_training = True

        def on_epoch_end(self, epoch, logs=None):
            self.accuracies += [logs[name] for name in sorted(logs) if name.endswith("accuracy")]

    data = folder / f"data-{current_workers().index}"
    data.mkdir()
    log = Log()
    globals()[kind](data, folder / "run", log)
    weights = [float(x) for v in log.model.trainable_variables for x in np.ravel(v)[:50]]
    found = {"losses": log.losses, "accuracies": log.accuracies, "weights": weights}
    file.write_text(json.dumps({**found, "after an overflow": after_an_overflow()}))
    current_workers().leave()


def translate(data, folder, log):
    """A translator: dropout off, global clipping, R-Drop and a moving average."""
    from small_run import small_run

    run = small_run(data, epochs=EPOCHS_AT_MOST)
    run.folder = folder
    run.preset = run.preset.with_changes({"rate": 0.0, "patience": EPOCHS_AT_MOST, "r_drop": 1.0})
    compiled = run.compile

    def clipped(model, schedule):
        compiled(model, schedule)
        model.optimizer.global_clipnorm = 0.5

    run.compile = clipped
    run.train([log])


def pretrain(data, folder, log):
    """BERT: masked words, and next sentences, for which a row of padding must be no class.

    Several workers accumulate gradients.
    """
    from small_pretraining import small_pretraining

    from tf_transformer.distribution import current_workers

    changes = {"epochs": EPOCHS_AT_MOST, "dropout": 0.0, "peak_learning_rate": 5e-3}
    rows = {"tokens_per_batch": 272, "accumulate": current_workers().count}  # 17 of them
    run = small_pretraining(data, warmup_share=0.0, **rows, **changes)
    run.folder = folder
    run.train([log])


def finetune(data, folder, log):
    """A classifier with exits; the last batch of an epoch has one text, too few for two workers."""
    import keras
    from tiny_bert import TOKENS, tiny_folder

    from tf_transformer import bert
    from tf_transformer.data import LabelledTexts
    from tf_transformer.distribution import current_workers
    from tf_transformer.training import FineTuning, fine_tune

    words = TOKENS[5:]
    texts = [(" ".join(words[n % 5 : n % 7 + 1] or words[:1]), n % 2) for n in range(50)]
    texts = LabelledTexts(("a", "b"), texts, texts[:9], [])
    checkpoint = tiny_folder(data / "bert")
    keras.utils.set_random_seed(1)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = bert.BertWithExits.from_pretrained(
        checkpoint, new_head=True, unpad=True, labels=texts.labels, **off
    )
    weights = {id(weight) for weight in model.weights}
    seeds = [variable for variable in model.variables if id(variable) not in weights]
    assert seeds
    for seed in seeds:  # as if each process had drawn its own
        seed.assign(seed + current_workers().index)
    settings = FineTuning(EPOCHS_AT_MOST, 7, learning_rate=5e-3, warmup_share=0.0, max_length=9)
    tokenizer = bert.read_tokenizer(checkpoint)
    fine_tune(model, tokenizer, texts, settings, callbacks=[log], verbose=0)


def after_an_overflow():
    """The loss scale and a weight after three steps; the second overflows on the last worker."""
    import keras
    import tensorflow as tf

    from tf_transformer import FusedAdam, GlobalLossScale
    from tf_transformer.distribution import current_workers

    optimizer, weight = GlobalLossScale(FusedAdam(0.1), initial_scale=8.0), keras.Variable([1.0])
    optimizer.build([weight])
    step = tf.function(lambda gradient: optimizer.apply([gradient], [weight]))
    is_last = current_workers().index == current_workers().count - 1
    for gradient in (1.0, math.inf if is_last else 1.0, 1.0):
        step(optimizer.scale_loss(tf.constant([gradient])))
    return [float(optimizer.dynamic_scale), float(weight.numpy()[0])]


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
    else:
        main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
