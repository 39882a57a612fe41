"""Every exported name works, has a docstring, and is imported lazily."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import tf_transformer

ROOT = Path(__file__).resolve().parent.parent
NAMES = [name for name in tf_transformer.__all__ if name != "__version__"]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tf_transformer").rglob("*.py")
)
# Classes that Keras saves by name and must find again by that name.
SAVED_BY_NAME = (
    keras.Layer,
    keras.Loss,
    keras.Metric,
    keras.Optimizer,
    keras.Initializer,
    keras.Regularizer,
    keras.constraints.Constraint,
    keras.optimizers.schedules.LearningRateSchedule,
)


def test_exported_names_are_there_and_explained():
    for name in NAMES:
        exported = getattr(tf_transformer, name)
        assert exported.__doc__ and exported.__doc__.strip(), name
        assert exported.__name__ == name
        assert exported.__module__.startswith("tf_transformer."), name


def test_dir_lists_what_is_exported():
    assert sorted(dir(tf_transformer)) == sorted(tf_transformer.__all__)
    assert len(set(tf_transformer.__all__)) == len(tf_transformer.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        tf_transformer.Transfomer  # noqa: B018


@pytest.mark.parametrize("module", ["tf_transformer", "tf_transformer.cli"])
def test_import_leaves_tensorflow_alone(module):
    program = (
        f"import sys, {module}\n"
        "slow = {'tensorflow', 'keras', 'matplotlib'} & sys.modules.keys()\n"
        "sys.exit(', '.join(slow) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model that was trained with what Keras saves by name, and its output."""
    from tf_transformer import (
        FusedAdam,
        InverseSquareRootSchedule,
        LanguageModel,
        MaskedAccuracy,
        SmoothedCrossentropy,
    )

    ids = np.array([[1, 4, 2]])
    model = LanguageModel(1, 8, 2, 11, 13, max_position=8)
    optimizer = FusedAdam(InverseSquareRootSchedule(8))
    model.compile(optimizer, SmoothedCrossentropy(), metrics=[MaskedAccuracy()], jit_compile=False)
    model.fit(ids, ids, verbose=0)
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model.save(path)
    return path, model(ids).numpy()


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "line",
    [
        "import tf_transformer, keras",
        "import keras, tf_transformer",
        "from tf_transformer import Transformer; import keras",
        "import keras; from tf_transformer import Transformer",
        pytest.param(
            "import tf_transformer, tensorflow; keras = tensorflow.keras", marks=pytest.mark.whole
        ),
        pytest.param("from tf_transformer.bert import Bert; import keras", marks=pytest.mark.whole),
    ],
)
def test_one_line_is_enough_to_load_a_model(line, saved):
    path, output = saved
    program = (
        f"{line}\nimport numpy as np, sys\n"
        f"model = keras.models.load_model({str(path)!r})\n"
        "classes = [model, model.optimizer, model.optimizer._learning_rate, model.loss]\n"
        "print(*[type(one).__module__.split('.')[0] for one in classes])\n"
        "print(model(np.array([[1, 4, 2]])).numpy().tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    homes, numbers = done.stdout.splitlines()
    assert homes.split() == ["tf_transformer"] * 4
    assert numbers == output.tobytes().hex()


def test_keras_finds_every_class_that_it_saves():
    """In a new process, before its module was imported."""
    names = [
        node.name
        for module in (ROOT / "tf_transformer").rglob("*.py")
        for node in ast.parse(module.read_text("utf-8")).body
        if any(
            "register_keras" in ast.unparse(each) for each in getattr(node, "decorator_list", ())
        )
    ]
    program = (
        "import tf_transformer, keras, sys\n"
        "known = keras.saving.get_custom_objects()\n"
        # All of them first: the import of one registers others.
        f"every = {{name: known['tf_transformer>' + name] for name in {names}}}\n"
        "for name, found in every.items():\n"
        "    assert found.__name__ == name, name\n"
        "    try:\n"
        "        found.from_config({'what it has not': 1})\n"
        "    except (KeyError, TypeError, ValueError):\n"
        "        pass\n"
        "    real = known[f'tf_transformer>{name}']\n"
        "    assert hasattr(real, 'get_config'), name\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_module_exports_what_it_has():
    for module in MODULES:
        imported = importlib.import_module(module)
        missing = [name for name in getattr(imported, "__all__", ()) if not hasattr(imported, name)]
        assert not missing, module


def test_keras_objects_are_registered_under_this_package():
    for module in MODULES:
        for name, member in vars(importlib.import_module(module)).items():
            if not inspect.isclass(member) or member.__module__ != module:
                continue
            if issubclass(member, SAVED_BY_NAME):
                assert keras.saving.get_registered_name(member) == f"tf_transformer>{name}"


def test_no_other_registration_name_is_used():
    for module in MODULES:
        importlib.import_module(module)
    ours = {
        name: registered
        for name, registered in keras.saving.get_custom_objects().items()
        if registered.__module__.split(".")[0] == "tf_transformer"
    }
    assert ours
    assert [name for name in ours if not name.startswith("tf_transformer>")] == []
