"""Every exported name works, has a docstring, and is imported lazily."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import keras
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


@pytest.mark.parametrize("name", NAMES)
def test_exported_name_is_there_and_explained(name):
    exported = getattr(tf_transformer, name)
    assert exported.__doc__ and exported.__doc__.strip()
    assert exported.__name__ == name
    assert exported.__module__.startswith("tf_transformer.")


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


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported(module):
    imported = importlib.import_module(module)
    for name in getattr(imported, "__all__", ()):
        assert hasattr(imported, name)


@pytest.mark.parametrize("module", MODULES)
def test_keras_objects_are_registered_under_this_package(module):
    imported = importlib.import_module(module)
    for name, member in vars(imported).items():
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
