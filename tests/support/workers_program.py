"""Train with several processes and with one on the same global batches, and compare every step.

`python workers_program.py FOLDER COUNT STEPS`. Prints one line of JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.training.scale import free_ports

EPOCHS_AT_MOST = 99


def main(folder, count, steps):
    alone = run(folder / "alone", 1, steps)
    together = run(folder / "together", count, steps)
    [expected], logs = read(alone), read(together)
    print(
        json.dumps(
            {
                "workers": count,
                "steps": len(expected["losses"]),
                "same on all": all(log["losses"] == logs[0]["losses"] for log in logs),
                "same weights on all": all(log["weights"] == logs[0]["weights"] for log in logs),
                "largest difference of a loss": largest(logs[0], expected, "losses"),
                "largest difference of a weight": largest(logs[0], expected, "weights"),
                "first and last loss": [expected["losses"][0], expected["losses"][-1]],
            }
        )
    )


def run(folder, count, steps):
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
        call = [sys.executable, __file__, "worker", str(folder), str(file), str(steps)]
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


def worker(folder, file, steps):
    """One process: a run with dropout off, global clipping, R-Drop and a moving average."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from tf_transformer.distribution import Workers, current_workers

    if "TF_CONFIG" in os.environ:
        Workers.start()
    import keras
    import numpy as np
    from small_run import small_run

    class Log(keras.callbacks.Callback):
        """Keeps the loss of every step, and stops after some."""

        def __init__(self):
            super().__init__()
            self.losses, self.total = [], 0.0

        def on_epoch_begin(self, epoch, logs=None):
            self.total = 0.0

        def on_train_batch_end(self, batch, logs=None):
            total = logs["loss"] * (batch + 1)  # the log is the mean of the epoch so far
            self.losses.append(total - self.total)
            self.total = total
            if len(self.losses) == steps:
                self.model.stop_training = True

    data = folder / f"data-{current_workers().index}"
    data.mkdir()
    run = small_run(data, epochs=EPOCHS_AT_MOST)
    run.folder = folder / "run"
    run.preset = run.preset.with_changes({"rate": 0.0, "patience": EPOCHS_AT_MOST, "r_drop": 1.0})
    compiled, log = run.compile, Log()

    def clipped(model, schedule):
        compiled(model, schedule)
        model.optimizer.global_clipnorm = 0.5

    run.compile = clipped
    run.train([log])
    weights = [float(x) for v in log.model.trainable_variables for x in np.ravel(v)[:50]]
    file.write_text(json.dumps({"losses": log.losses, "weights": weights}))


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
