"""Module paths of version 0.1 that still work."""

import importlib
import sys


def keep_old_paths(package, moved):
    """Keep the old import paths of a package's modules working."""
    for old, new in moved.items():
        module = importlib.import_module(f"{package}.{new}")
        sys.modules[f"{package}.{old}"] = module
        if not hasattr(sys.modules[package], old):  # a function may have the same name
            setattr(sys.modules[package], old, module)
