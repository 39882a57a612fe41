"""Recipes: distil, prune and quantize a model in stages."""

import dataclasses
import difflib
import itertools
import typing
from pathlib import Path
from typing import ClassVar

import numpy as np

from tf_transformer.compression.distiller import Distiller
from tf_transformer.compression.importance import least_important, prune_gradually
from tf_transformer.compression.pruning import (
    attention_sites,
    network_sites,
    prunable_stacks,
    pruned,
)
from tf_transformer.errors import ArgumentError, MissingFileError, check_fields
from tf_transformer.json_text import parse_json

__all__ = ["Distil", "Prune", "Quantize", "Recipe"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """A step of a recipe that trains a smaller model to imitate the model before the step.

    Args:
        epochs: int, passes over the training data.
        learning_rate: float, the peak; None for the default of the kind of model.
        temperature, soft_targets: see `Distiller`; with `soft_targets=0` it learns from the data
            alone.
    """

    epochs: int = 1
    learning_rate: float | None = None
    temperature: float = 2.0
    soft_targets: float = 0.5

    def check(self, *conditions):
        """Check the settings of a subclass, see `check_fields`, and those of all."""
        rate = self.learning_rate
        check_fields(
            self,
            *conditions,
            ("epochs", "at least 1", self.epochs >= 1),
            ("learning_rate", "a positive number", rate is None or rate > 0),
            ("temperature", "a number above 0", self.temperature > 0),
            ("soft_targets", "a number in [0, 1]", 0 <= self.soft_targets <= 1),
        )

    def distiller(self, student, teacher, **losses):
        """The model to train: a `Distiller`, or the student if no loss uses the teacher."""
        if not self.soft_targets and not any(losses.values()):
            return student
        return Distiller(
            student,
            teacher,
            temperature=self.temperature,
            soft_targets=self.soft_targets,
            **losses,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distil(TrainingStep):
    """Train a model with fewer layers to imitate the model before this step.

    The student starts as its teacher without some of the layers, evenly spaced (Shleifer and Rush
    2020, "Pre-trained Summarization Distillation": shrink and fine-tune), and learns with a
    `Distiller`. A translator also learns the teacher's translations of its training texts, found
    by beam search (Kim and Rush 2016).

    Args:
        layers: int, the layers that are left; or a pair of int, of the encoder and of the decoder
            of a translator.
        epochs, learning_rate, temperature, soft_targets: see `TrainingStep`.
        hidden_states: float, see `Distiller`, for BERT.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> Distil(layers=3).name
        'distil'
    """

    name: ClassVar[str] = "distil"

    layers: int | list
    epochs: int = 3
    hidden_states: float = 0.0

    def __post_init__(self):
        self.check(
            ("layers", "one or two numbers of at least 1", self._counts()),
            ("hidden_states", "at least 0", self.hidden_states >= 0),
        )

    def rehearse(self, model):
        """Cut the layers without training.

        Args:
            model: built `Transformer` or BERT model.

        Returns:
            The smaller model.

        Raises:
            ValueError: If the model has other stacks or fewer layers, or `pruned` or `Distiller`
                refuses.

        Example:
            >>> from tf_transformer.bert import Bert, BertConfig
            >>> model = Bert(BertConfig(13, 8, 6, 2, 16))
            >>> model.build()
            >>> Distil(layers=2).rehearse(model).config.num_hidden_layers
            2
        """
        counts = {name: len(layers) for name, layers in prunable_stacks(model).items()}
        wanted = self._wanted()
        if len(wanted) != len(counts):
            raise ArgumentError(
                "layers",
                f"{len(counts)} numbers, for the layers of {' and '.join(counts)}",
                f"{self.layers!r}",
            )
        gone = {}
        for (name, count), left in zip(counts.items(), wanted, strict=True):
            if left > count:
                raise ArgumentError(
                    "layers", f"at most {count}, the layers of the {name} before this step", left
                )
            kept = {round((n + 1) * count / left) - 1 for n in range(left)}
            gone[name] = [n for n in range(count) if n not in kept]
        student = pruned(model, layers=gone)
        self._taught(student, model)
        return student

    def apply(self, model, task, folder):
        """Cut the layers and train.

        Args:
            model: the teacher.
            task: `ClassifierTask` or `TranslatorTask` of `export.chain`.
            folder: Path for unfinished work.

        Returns:
            The student.
        """
        student = self.rehearse(model)
        task.distil(self._taught(student, model), model, self, folder)
        return student

    def _taught(self, student, teacher):
        return self.distiller(student, teacher, hidden_states=self.hidden_states)

    def _wanted(self):
        return (self.layers,) if isinstance(self.layers, int) else tuple(self.layers)

    def _counts(self):
        wanted = self._wanted()
        return len(wanted) in (1, 2) and all(isinstance(n, int) and n >= 1 for n in wanted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prune(TrainingStep):
    """Remove the least important heads and inner units of the feed-forward networks, and train.

    Args:
        heads, units: floats in [0, 1), the share of them to remove; one of the two is above 0.
        rounds: int, how many times to remove a part and train.
        epochs, learning_rate, temperature, soft_targets: see `TrainingStep`, for each round.
        by: "gradient", "ablation" or, for heads alone, "confidence": see `head_importance`.

    Raises:
        ValueError: If a setting is out of range.

    Example:
        >>> Prune(heads=0.5, units=0.25).by
        'gradient'
    """

    name: ClassVar[str] = "prune"

    heads: float = 0.0
    units: float = 0.0
    rounds: int = 1
    by: str = "gradient"

    def __post_init__(self):
        measures = ("gradient", "ablation", *(() if self.units else ("confidence",)))
        self.check(
            ("heads", "a share in [0, 1)", 0 <= self.heads < 1),
            ("units", "a share in [0, 1)", 0 <= self.units < 1),
            ("heads", "a share above 0, or one of the units", self.heads or self.units),
            ("rounds", "at least 1", self.rounds >= 1),
            ("by", " or ".join(measures), self.by in measures),
        )

    def rehearse(self, model):
        """Remove as many heads and units, but any ones, without training.

        Args:
            model: built `Transformer` or BERT model.

        Returns:
            The smaller model.

        Raises:
            ValueError: If a layer would lose all of them, or `pruned` refuses.

        Example:
            >>> from tf_transformer.bert import Bert, BertConfig
            >>> model = Bert(BertConfig(13, 8, 2, 4, 16))
            >>> model.build()
            >>> sum(heads for heads, _ in Prune(heads=0.5).rehearse(model).config.layer_sizes)
            4
        """
        cuts = {}
        for name, find, share in (
            ("heads", attention_sites, self.heads),
            ("units", network_sites, self.units),
        ):
            if share:
                equal = {
                    stack: [np.ones(site.count) for site in sites]
                    for stack, sites in find(model).items()
                }
                try:
                    cuts[name] = least_important(equal, share)
                except ArgumentError as error:
                    raise error.inside(name) from None
        return pruned(model, **cuts)

    def apply(self, model, task, folder):
        """Remove and train.

        Args:
            model: the model before; it does not change.
            task: `ClassifierTask` or `TranslatorTask` of `export.chain`.
            folder: Path for unfinished work.

        Returns:
            The smaller model.
        """
        task.compile(model)
        rounds = iter(range(1, self.rounds + 1))

        def train(smaller):
            task.compile(smaller)  # the next round measures importance
            task.train(self.distiller(smaller, model), self, folder / f"round-{next(rounds)}")

        return prune_gradually(
            model,
            task.examples(),
            train,
            heads=self.heads,
            units=self.units,
            steps=self.rounds,
            by=self.by,
        )


_DTYPES = {
    "tensorflow": ("int8", "float16", "bfloat16"),
    "litert": ("int8", "float16", "full int8", "float32"),
}
_RANGES = ("static", "dynamic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantize:
    """Export with fewer bits for each weight; the last step.

    Args:
        dtype: "int8", "float16" and others, see `export.stored_weights.stored` and `write_litert`.
        ranges: "static" (the default) or "dynamic", for int8 by TensorFlow alone, see `quantized`;
            LiteRT's "int8" is always dynamic.
        runtime: "tensorflow" writes a SavedModel, "litert" a folder for `tf_transformer.litert`.

    Raises:
        ValueError: If the runtime, or the dtype for it, is unknown, or ranges have no meaning.

    Example:
        >>> Quantize(runtime="litert").dtype
        'int8'
    """

    name: ClassVar[str] = "quantize"

    dtype: str = "int8"
    ranges: str | None = None
    runtime: str = "tensorflow"

    def __post_init__(self):
        has_ranges = self.runtime == "tensorflow" and self.dtype == "int8"
        if has_ranges and self.ranges is None:
            object.__setattr__(self, "ranges", "static")
        for name, choices in (
            ("runtime", tuple(_DTYPES)),
            ("dtype", _DTYPES.get(self.runtime, ())),
            ("ranges", _RANGES if has_ranges else (None,)),
        ):
            if getattr(self, name) not in choices:
                known = ", ".join(map(str, choices))
                raise ArgumentError(name, f"one of {known}", f"{getattr(self, name)!r}")

    def rehearse(self, model):
        """The model: the weights are rounded when it is exported."""
        return model

    def apply(self, model, task, folder):
        """The model: the weights are rounded when it is exported."""
        return model


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
