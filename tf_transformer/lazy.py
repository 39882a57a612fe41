"""Names of a package that are imported on first use."""

from importlib import import_module


def lazy_names(package, homes):
    """Make the `__getattr__` and `__dir__` of a package (PEP 562).

    Args:
        package: str, the dotted name of the package.
        homes: dict, each public name to the module that defines it, relative to the package.

    Returns:
        `(__getattr__, __dir__)`.

    Example:
        >>> find, names = lazy_names("tf_transformer", {"lazy_names": "lazy"})
        >>> find("lazy_names") is lazy_names, names()
        (True, ['lazy_names'])
    """
    names = sorted(homes)

    def find(name):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find, lambda: names
