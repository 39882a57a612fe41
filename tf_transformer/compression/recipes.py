"""Recipes: distil, prune and quantize a model in stages."""

import dataclasses
import itertools
from pathlib import Path

from tf_transformer.compression.distiller import Distiller
from tf_transformer.compression.importance import arbitrary_cuts, prune_gradually
from tf_transformer.compression.pruning import prunable_stacks, pruned
from tf_transformer.errors import (
    ArgumentError,
    MissingFileError,
    check,
    check_choice,
    check_fields,
    check_ranges,
    check_types,
)
from tf_transformer.json_text import parse_json

__all__ = ["Distil", "Prune", "Quantize", "Recipe"]

# What is expected of a number, whether one is that, and the settings for which it must hold.
_RANGES = (
    ("at least 1", lambda x: x >= 1, "epochs rounds"),
    ("a positive number", lambda x: x > 0, "learning_rate"),
    ("a number above 0", lambda x: x > 0, "temperature"),
    ("at least 0", lambda x: x >= 0, "hidden_states"),
    ("a number in [0, 1]", lambda x: 0 <= x <= 1, "soft_targets"),
    ("a share in [0, 1)", lambda x: 0 <= x < 1, "heads units"),
)


class Step:
    """One step of a recipe, which makes a `Transformer` or BERT model smaller."""

    name = property(lambda self: type(self).__name__.lower())

    def __post_init__(self):
        check_ranges(self, _RANGES)

    def rehearse(self, model):
        """Return a model of the later size, untrained, to find errors beforehand."""
        return model

    def apply(self, model, task, folder):
        """Return the smaller model, trained by a task of `export.chain`, resumably in `folder`."""
        return model


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep(Step):
    """A step that trains a smaller model to imitate the model before the step."""

    epochs: int = 1
    learning_rate: float | None = None
    temperature: float = 2.0
    soft_targets: float = 0.5

    def learner(self, student, teacher, hidden_states=0.0):
        """Return the model to train: a `Distiller`, or the student if no loss uses the teacher."""
        weights = {"soft_targets": self.soft_targets, "hidden_states": hidden_states}
        if not any(weights.values()):
            return student
        return Distiller(student, teacher, temperature=self.temperature, **weights)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distil(TrainingStep):
    """Train a model with fewer layers to imitate the model before this step.

    The student starts with evenly spaced layers of its teacher (Shleifer and Rush 2020,
    "Pre-trained Summarization Distillation": shrink and fine-tune), and learns with a `Distiller`.
    A translator also learns its teacher's translations, see `distilled_pairs`.

    Args:
        layers: int, the number of layers to keep; for a translator a pair, encoder and decoder.
        epochs: int, passes over the training data.
        learning_rate: float, the peak; None for the default of the kind of model.
        temperature, soft_targets: see `Distiller`; with `soft_targets=0` only the data teach.
        hidden_states: float, see `Distiller`, for BERT.

    A setting that has another type or is out of range is a ValueError, as in all steps.
    """

    layers: int | list
    epochs: int = 3
    hidden_states: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        counts = self._counts
        is_right = len(counts) in (1, 2) and all(isinstance(n, int) and n >= 1 for n in counts)
        check_fields(self, ("layers", "one or two numbers of at least 1", is_right))

    @property
    def _counts(self):
        return (self.layers,) if isinstance(self.layers, int) else tuple(self.layers)

    def rehearse(self, model):
        """Remove the other layers."""
        stacks = prunable_stacks(model)
        expected = f"{len(stacks)} numbers, for the layers of {' and '.join(stacks)}"
        check_fields(self, ("layers", expected, len(self._counts) == len(stacks)))
        gone = {}
        for (name, layers), left in zip(stacks.items(), self._counts, strict=True):
            count = len(layers)
            expected = f"at most {count}, the layers of the {name} before this step"
            check_fields(self, ("layers", expected, left <= count))
            kept = {round((n + 1) * count / left) - 1 for n in range(left)}
            gone[name] = [n for n in range(count) if n not in kept]
        student = pruned(model, layers=gone)
        self.learner(student, model, self.hidden_states)  # raises an error if they do not fit
        return student

    def apply(self, model, task, folder):
        """Remove the other layers and train."""
        student = self.rehearse(model)
        task.distil(self.learner(student, model, self.hidden_states), model, self, folder)
        return student


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prune(TrainingStep):
    """Remove the least important heads and inner units of the feed-forward networks, and train.

    Args:
        heads, units: floats in [0, 1), the share to remove; at least one is above 0.
        rounds: int, the number of times to remove a part and train.
        epochs, learning_rate, temperature, soft_targets: see `Distil`, for each round.
        by: "gradient", "ablation" or, for heads alone, "confidence": see `head_importance`.
    """

    heads: float = 0.0
    units: float = 0.0
    rounds: int = 1
    by: str = "gradient"

    def __post_init__(self):
        super().__post_init__()
        measures = ("gradient", "ablation", *(() if self.units else ("confidence",)))
        check_fields(
            self,
            ("heads", "a share above 0, or one of the units", self.heads or self.units),
            ("by", " or ".join(measures), self.by in measures),
        )

    def rehearse(self, model):
        """Remove the same number of arbitrary heads and units."""
        return pruned(model, **arbitrary_cuts(model, self.heads, self.units))

    def apply(self, model, task, folder):
        """Remove and train in rounds."""
        rounds = itertools.count(1)

        def train(smaller):
            task.compile(smaller)  # the next round measures importance
            task.train(self.learner(smaller, model), self, folder / f"round-{next(rounds)}")

        task.compile(model)
        how = {"heads": self.heads, "units": self.units, "steps": self.rounds, "by": self.by}
        return prune_gradually(model, task.examples(), train, **how)


_DTYPES = {
    "tensorflow": ("int8", "float16", "bfloat16"),
    "litert": ("int8", "float16", "full int8", "float32"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantize(Step):
    """Export with fewer bits per weight, as the last step; the model itself stays as it is.

    Args:
        dtype: "int8", "float16" and others, see `export.saving.stored` and `write_litert`.
        ranges: "static" (the default) or "dynamic", only for int8 in TensorFlow, see `quantized`;
            LiteRT's "int8" is always dynamic.
        runtime: "tensorflow" writes a SavedModel, "litert" a folder for `tf_transformer.litert`.
    """

    dtype: str = "int8"
    ranges: str | None = None
    runtime: str = "tensorflow"

    def __post_init__(self):
        super().__post_init__()
        has_ranges = self.runtime == "tensorflow" and self.dtype == "int8"
        if has_ranges and self.ranges is None:
            object.__setattr__(self, "ranges", "static")
        check_choice("runtime", self.runtime, tuple(_DTYPES))
        check_choice("dtype", self.dtype, _DTYPES[self.runtime])
        check_choice("ranges", self.ranges, ("static", "dynamic") if has_ranges else (None,))


STEPS = {"distil": Distil, "prune": Prune, "quantize": Quantize}
# The keys of `data`, the same as the options of `tf-transformer finetune`.
_DATA = ("train", "validation", "test", "set", "archive")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model and the steps that make it smaller, as in a JSON file.

    Args:
        model: str, the output of `tf-transformer finetune`, or a training run of a translator.
        steps: tuple of `Distil`, `Prune` and `Quantize`; `Quantize` comes last, and may be repeated
            to compare several forms of the same model. No step or another order is a ValueError.
        data: dict, the texts of a classifier: `set` and `archive`, or `train` and optionally
            `validation` and `test`, see `load_labelled_texts` and `read_labelled_tsv`. Empty for a
            translator, whose run names them.

    Example:
        >>> recipe = Recipe("runs/en-zh", (Distil(layers=[2, 1]), Quantize()))
        >>> Recipe.from_dict(recipe.to_dict()) == recipe
        True
    """

    model: str
    steps: tuple
    data: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_types(self)
        check(self.steps, "steps", f"at least one of {', '.join(STEPS)}", "none")
        for n, (step, after) in enumerate(itertools.pairwise(self.steps)):
            if isinstance(step, Quantize) and not isinstance(after, Quantize):
                expected = "quantize as the last step, since rounded weights cannot be trained"
                raise ArgumentError(f"steps[{n}]", expected, f"{after.name} after it")
        for name, value in self.data.items():
            check_choice("data", name, _DATA)
            check(isinstance(value, str), "data", f"a string as {name}", f"{value!r}")

    @classmethod
    def read(cls, path):
        """Read a recipe from a JSON file, in which paths are relative to its folder.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is not JSON; see also `from_dict`.
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
            check("\0" not in name, "recipe", f"paths in {path}", f"{name!r}")
            return str((path.parent / name).resolve())

        data = {key: v if key == "set" else inside(v) for key, v in recipe.data.items()}
        return dataclasses.replace(recipe, model=inside(recipe.model), data=data)

    @classmethod
    def from_dict(cls, content):
        """Create a recipe from the content of its file: `model`, `steps` and optionally `data`.

        Raises:
            ValueError: If a field or a step is unknown, missing or has another type, or a setting
                is out of range.
        """
        check(isinstance(content, dict), "recipe", "an object", f"{content!r}")
        for name in content:
            check_choice("recipe", name, ("model", "steps", "data"))
        steps = content.get("steps")
        check(isinstance(steps, list), "steps", "a list of steps", f"{steps!r}")
        steps = tuple(_step(f"steps[{n}]", step) for n, step in enumerate(steps))
        return cls(content.get("model"), steps, content.get("data") or {})

    def to_dict(self):
        """Return the content of its file, with every setting."""
        steps = [{"step": step.name, **dataclasses.asdict(step)} for step in self.steps]
        return {"model": self.model, "data": self.data, "steps": steps}


def _step(place, content):
    if not isinstance(content, dict) or not isinstance(content.get("step"), str):
        raise ArgumentError(place, 'an object with "step"', f"{content!r}")
    settings = dict(content)
    name = settings.pop("step")
    check_choice(place, name, STEPS)
    fields = dataclasses.fields(STEPS[name])
    for key in settings:
        check_choice(place, key, [field.name for field in fields])
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in settings:
            raise ArgumentError(f"{place}, {name}", f"a value of {field.name}", "none")
    try:
        return STEPS[name](**settings)
    except ArgumentError as error:
        raise error.inside(f"{place}, {name}") from error
