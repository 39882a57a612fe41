"""Load in a new process what tests/test_copies.py saved, and write down what it computes there."""

import os
import pickle
import sys
from pathlib import Path

import tensorflow as tf


def main(folder):
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    inputs = pickle.loads((folder / "inputs.pickle").read_bytes())
    report = {}

    exported = tf.saved_model.load(folder / "exported")
    report["export"] = exported.serve(tf.nest.map_structure(tf.constant, inputs))
    assert "tf_transformer" not in sys.modules  # with TensorFlow alone

    import tf_transformer  # noqa: F401, I001
    import keras

    together = keras.models.load_model(folder / "together.keras")
    report["keras"] = together(tf.nest.map_structure(tf.constant, inputs))
    report["fitted"] = {
        path.stem.removeprefix("fitted-"): [
            variable.numpy() for variable in keras.models.load_model(path).optimizer.variables
        ]
        for path in folder.glob("fitted-*.keras")
    }

    from copied import ITEMS, by_name

    report |= {way: by_name(report[way]) for way in ("export", "keras")}

    report["pickle"] = {
        name: ITEMS[name].numbers(pickle.loads((folder / f"{name}.pickle").read_bytes()))
        for name in ITEMS
        if (folder / f"{name}.pickle").is_file()
    }

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        together = keras.models.load_model(folder / "together.keras")
        outputs = together.predict(inputs, batch_size=2, verbose=0)  # a row for each of the two
    report["mirrored"] = by_name(outputs)
    (folder / "report.pickle").write_bytes(pickle.dumps(tf.nest.map_structure(as_array, report)))


def as_array(value):
    return value.numpy() if tf.is_tensor(value) else value


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(Path(sys.argv[1]))
