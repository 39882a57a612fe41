"""A recipe for a smaller model."""

import dataclasses
import difflib
import itertools
import typing
from pathlib import Path

from tf_transformer.compression.recipes.distil import Distil
from tf_transformer.compression.recipes.prune import Prune
from tf_transformer.compression.recipes.quantize import Quantize
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import parse_json

STEPS = {kind.name: kind for kind in (Distil, Prune, Quantize)}
# Of `data`, the same as the options of `tf-transformer finetune`.
_DATA = ("train", "validation", "test", "set", "archive")
_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list of them",
    type(None): "null",
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model and the steps that make it smaller, as a file of JSON has them.

    Args:
        model: str, the output of `tf-transformer finetune`, or a training run of a translator.
        steps: tuple of `Distil`, `Prune` and `Quantize`; `Quantize` comes last, more than once to
            compare several forms of the same model.
        data: dict, the texts of a classifier: `set` and `archive`, or `train` and perhaps
            `validation` and `test`, see `load_labelled_texts` and `read_labelled_tsv`. Empty for a
            translator, whose run knows them.

    Raises:
        ValueError: If there is no step, or another one after `Quantize`.

    Example:
        >>> recipe = Recipe("runs/en-zh", (Distil(layers=[2, 1]), Quantize()))
        >>> Recipe.from_dict(recipe.to_dict()) == recipe
        True
    """

    model: str
    steps: tuple
    data: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not self.steps:
            raise ArgumentError("steps", f"at least one of {', '.join(STEPS)}", "none")
        for n, (step, after) in enumerate(itertools.pairwise(self.steps)):
            if isinstance(step, Quantize) and not isinstance(after, Quantize):
                raise ArgumentError(
                    f"steps[{n}]",
                    "quantize as the last step, since rounded weights cannot be trained",
                    f"{after.name} after it",
                )

    @classmethod
    def read(cls, path):
        """Read a recipe.

        Args:
            path: str or Path of a JSON file; the paths in it are relative to its folder.

        Returns:
            `Recipe`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is not JSON, or see `from_dict`.

        Example:
            >>> text = '{"model": "run", "steps": [{"step": "prune", "heads": 0.5}]}'
            >>> _ = Path("recipe.json").write_text(text)
            >>> Recipe.read("recipe.json").steps[0].heads
            0.5
        """
        path = Path(path)
        if not path.is_file():
            raise MissingFileError("recipe", "a JSON file", f"no file {path}")
        try:
            content = parse_json(path.read_bytes())
        except ValueError as error:
            raise ArgumentError("recipe", f"JSON in {path}", error) from error
        recipe = cls.from_dict(content)

        def inside(name):
            return str((path.parent / name).resolve())

        data = {key: v if key == "set" else inside(v) for key, v in recipe.data.items()}
        return dataclasses.replace(recipe, model=inside(recipe.model), data=data)

    @classmethod
    def from_dict(cls, content):
        """Create a recipe from the content of its file.

        Args:
            content: dict with `model`, `steps` and perhaps `data`.

        Returns:
            `Recipe`.

        Raises:
            ValueError: If a field or a step is unknown, missing or of another type, or a setting
                is out of range.

        Example:
            >>> Recipe.from_dict({"model": "run", "steps": [{"step": "quantise"}]})
            Traceback (most recent call last):
            tf_transformer.errors.ArgumentError: steps[0]: expected one of distil, prune, quantize,
            got 'quantise' (did you
            mean 'quantize'?).
        """
        _check_fields("recipe", content, ("model", "steps", "data"))
        model, steps, data = (content.get(name) for name in ("model", "steps", "data"))
        if not isinstance(model, str):
            raise ArgumentError("model", "the path of a folder", f"{model!r}")
        if not isinstance(steps, list):
            raise ArgumentError("steps", "a list of steps", f"{steps!r}")
        _check_fields("data", data or {}, _DATA)
        for name, value in (data or {}).items():
            if not isinstance(value, str):
                raise ArgumentError("data", f"a string as {name}", f"{value!r}")
        steps = tuple(_step(f"steps[{n}]", step) for n, step in enumerate(steps))
        return cls(model, steps, data or {})

    def to_dict(self):
        """The content of its file, with every setting.

        Returns:
            dict that JSON can represent.
        """
        steps = [{"step": step.name, **dataclasses.asdict(step)} for step in self.steps]
        return {"model": self.model, "data": self.data, "steps": steps}


def _step(place, content):
    if not isinstance(content, dict) or not isinstance(content.get("step"), str):
        raise ArgumentError(place, 'an object with "step"', f"{content!r}")
    settings = dict(content)
    name = settings.pop("step")
    _check_known(place, name, STEPS)
    kind = STEPS[name]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    _check_fields(place, settings, fields)
    for field in fields.values():
        if field.name not in settings and field.default is dataclasses.MISSING:
            raise ArgumentError(f"{place}, {name}", f"a value of {field.name}", "none")
    for key, value in settings.items():
        wanted = typing.get_args(fields[key].type) or (fields[key].type,)
        allowed = (*wanted, int) if float in wanted else wanted
        if not isinstance(value, allowed) or isinstance(value, bool):
            kinds = " or ".join(_KINDS[kind] for kind in wanted)
            raise ArgumentError(key, kinds, f"{value!r}", place=f"{place}, {name}: {key}")
    try:
        return kind(**settings)
    except ArgumentError as error:
        raise error.inside(f"{place}, {name}") from error


def _check_fields(place, content, known):
    if not isinstance(content, dict):
        raise ArgumentError(place, "an object", f"{content!r}")
    for name in content:
        _check_known(place, name, known)


def _check_known(place, name, known):
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ArgumentError(place, f"one of {', '.join(known)}", f"{name!r}{hint}")
