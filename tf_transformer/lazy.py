"""Names of a package that are imported on first use."""

import os
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec

from tf_transformer.errors import ArgumentError


def check_keras_backend():
    """Refuse a Keras backend other than TensorFlow, before something else fails."""
    backend = os.environ.get("KERAS_BACKEND")
    if backend in (None, "tensorflow") or "keras" in sys.modules:
        backend = import_module("keras").config.backend()
    if backend != "tensorflow":
        expected = "tensorflow, the backend of all layers of this library"
        remedy = "Set the variable, or `backend` in ~/.keras/keras.json, before Keras is imported."
        raise ArgumentError("KERAS_BACKEND", expected, backend, remedy)


def lazy_names(package, homes):
    """Create the `__getattr__` and `__dir__` of a package (PEP 562)."""
    names = sorted(homes)

    def find(name):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find, lambda: names


def saved_names(package, homes):
    """Let Keras load classes of a package whose modules were not imported."""
    # `keras.models.load_model` finds a class by the name that its module registers on import. Until
    # then, a stand-in with this name imports the module.

    def register():
        known = sys.modules["keras"].saving.get_custom_objects()
        for name, home in homes.items():
            known.setdefault(f"{package}>{name}", _stand_in(package, name, home))

    if sys.modules.get("keras"):  # not None either, which forbids its import
        register()
    else:
        sys.meta_path.insert(0, _AfterKeras(register))


def _stand_in(package, name, home):
    """A class that creates instances of another class, which it imports."""
    key = f"{package}>{name}"

    def real():
        import_module(f"{package}.{home}")
        known = sys.modules["keras"].saving.get_custom_objects()
        if known[key] is StandIn:
            raise TypeError(f"Could not locate class {key!r}: {package}.{home} registers none.")
        return known[key]

    class StandIn:
        def __new__(cls, *args, **kwargs):
            return real()(*args, **kwargs)

        @classmethod
        def from_config(cls, config):
            return real().from_config(config)

    StandIn.__name__, StandIn.__module__ = name, f"{package}.{home}"
    return StandIn


class _AfterKeras(MetaPathFinder):
    """Calls a function after Keras is imported."""

    def __init__(self, then):
        self.then = then

    def find_spec(self, fullname, path, target=None):
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)  # so that the other finders are used
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.then()

            spec.loader.exec_module = exec_module
        return spec
