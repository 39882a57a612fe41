"""Module paths of version 0.1 that still work."""

import importlib
import sys


def keep_old_paths(package, moved):
    """Keep the old import paths of a package's modules working.

    Args:
        package: str, the dotted name of the package.
        moved: dict, old module name to new one, both relative to the package.

    Example:
        >>> import sys
        >>> keep_old_paths("tf_transformer", {"old_name": "moved"})
        >>> sys.modules["tf_transformer.old_name"].__name__
        'tf_transformer.moved'
    """
    for old, new in moved.items():
        module = importlib.import_module(f"{package}.{new}")
        sys.modules[f"{package}.{old}"] = module
        if not hasattr(sys.modules[package], old):  # a function may have the same name
            setattr(sys.modules[package], old, module)
