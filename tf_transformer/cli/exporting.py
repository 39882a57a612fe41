"""The commands export, compress and info."""

import dataclasses
import json
import shlex
import sys
from pathlib import Path

from tf_transformer.cli.arguments import add_model_argument, model_path
from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.cli.translation import score
from tf_transformer.errors import ArgumentError


def add_compress(commands):
    """Add the parser of this file."""
    compress = commands.add_parser(
        "compress", help="distil, prune and quantize a model by a recipe, and measure each step"
    )
    compress.add_argument("recipe", metavar="RECIPE", help="a JSON file, see docs/compression.md")
    compress.add_argument(
        "--output",
        metavar="FOLDER",
        required=True,
        help="a new folder, or the folder of an interrupted call to resume it",
    )
    compress.set_defaults(run=_compress)


def _compress(options):
    for package in ("matplotlib", "sacrebleu", "safetensors", "tokenizers"):
        require(package, "train")
    import_tensorflow()
    from tf_transformer.compression.recipes import Recipe
    from tf_transformer.export import compress

    recipe = Recipe.read(options.recipe)
    compress(recipe, options.output, verbose=1 if sys.stdout.isatty() else 2)
    print(f"Table: {options.output}/README.md")


def add_info(commands):
    """Add the parser of this file."""
    info = commands.add_parser(
        "info", help="describe a model: data, sizes, scores; or the parameters of a BERT"
    )
    info.add_argument("name", nargs="?", help="bert-base, albert-base, ..., or a folder")
    add_model_argument(info)
    info.set_defaults(run=_info)


def _info(options):
    if options.name is not None and options.model is not None:
        raise ArgumentError("name, --model", "one of them", "both")
    folder = options.model
    if options.name is not None:
        marks = ("run.json", "translator.json")
        if not any((Path(options.name) / mark).is_file() for mark in marks):
            _parameters(options.name)
            return
        folder = options.name
    import_tensorflow()
    from tf_transformer.export.translation import folder as saved

    path = model_path(folder)
    print(f"{path}\n{json.dumps(saved.read_description(path), indent=2, ensure_ascii=False)}")


def _parameters(name):
    import_tensorflow()
    from tf_transformer.models import bert
    from tf_transformer.models.bert.attention import without_drawing

    if Path(name).exists() or Path(f"{name}.index").exists():
        model = bert.Bert.from_pretrained(name)
    else:
        model = bert.Bert(bert.published_config(name))
        with without_drawing():  # only the sizes are printed
            model.build()
    print(f"{name}\n{json.dumps(model.config.to_dict(), indent=2, ensure_ascii=False)}\n")
    for part, count in bert.parameter_table(model).items():
        print(f"{count:>13,}  {part}")


SENTENCES = {
    "en-zh": ("I love China.", "Where is the station?", "He is reading a book."),
    "zh-en": ("我爱中国。", "车站在哪里?", "他在看书。"),
    "en-fr": ("I love you.", "Where is the station?", "He is reading a book."),
    "fr-en": ("Je t'aime.", "Où est la gare ?", "Il lit un livre."),
}
# The settings of a preset that have an option of `train`.
PRESET_OPTIONS = ("subword", "vocab_size", "epochs", "seed", "precision", "accumulate")
# The options of `IdTranslator`; `_RULES` also change greedy translations.
_RULES = ("min_length", "no_repeat_ngram", "length_limit")
_DECODING = (*_RULES, "beam_size", "length_penalty", "n_best", "jit_compile")


def add_export(commands):
    """Add the parser of this file."""
    export = commands.add_parser(
        "export",
        help="write the SavedModel of a training run, or an exported model with other settings",
    )
    export.add_argument(
        "folder",
        nargs="+",
        help="the folder of a run; several runs become one ensemble; or an exported model",
    )
    export.add_argument(
        "--output", metavar="FOLDER", help="default: saved_model in the run, if there is one run"
    )
    export.add_argument("--beam-size", type=int, help="of `translate --beam` (default: 5)")
    export.add_argument("--length-penalty", type=float, help="of beam search (default: 0.6)")
    export.add_argument("--n-best", type=int, help="size of the n-best list (default: 1)")
    export.add_argument("--min-length", type=int, help="minimum length in tokens (default: 0)")
    export.add_argument(
        "--no-repeat-ngram",
        type=int,
        metavar="N",
        help="never repeat a sequence of N tokens (default: 0, off)",
    )
    export.add_argument(
        "--length-limit",
        type=int,
        nargs=2,
        metavar=("A", "B"),
        help="at most A times the tokens of the text, including its end, plus B (default: 2 10)",
    )
    export.add_argument(
        "--jit-compile",
        action="store_true",
        default=None,
        help="compile decoding with XLA: faster, but the first text of each size takes seconds",
    )
    export.add_argument(
        "--weights-dtype",
        choices=("float32", "float16", "bfloat16", "int8"),
        help="of the weights in the files; the model computes in float32, except that int8 weights "
        "are multiplied as integers (default: float32)",
    )
    export.set_defaults(run=_export)


def _export(options):
    import_tensorflow()
    from tf_transformer.data.files import check_replaceable
    from tf_transformer.export.translation.folder import DESCRIPTION
    from tf_transformer.training import TrainingRun

    exported = [folder for folder in options.folder if (Path(folder) / DESCRIPTION).is_file()]
    alone = len(options.folder) == 1 and not exported
    if options.output is None and not alone:
        raise ArgumentError("--output", "a folder for the ensemble or the copy", "none")
    path = Path(options.output or Path(*options.folder) / "saved_model")
    decoding = {name: getattr(options, name) for name in _DECODING}
    decoding = {name: value for name, value in decoding.items() if value is not None}
    if exported and len(options.folder) > 1:
        raise ArgumentError(
            "folder",
            "runs only, or one exported model",
            f"{', '.join(exported)} among {len(options.folder)} folders",
        )
    runs = [] if exported else [TrainingRun.open(folder) for folder in options.folder]
    check_replaceable(path, only_with=DESCRIPTION)  # before the translations, which take minutes
    if exported:
        _export_again(exported[0], path, options.weights_dtype, decoding)
    else:
        export_runs(runs, path, weights_dtype=options.weights_dtype or "float32", **decoding)
    print(f"Model: {path}")


def _export_again(folder, path, weights_dtype, decoding):
    """Write an exported model with other settings; keep its scores if they still hold."""
    from tf_transformer.data import PairSource
    from tf_transformer.export import Translator, load_transformer, save_translator
    from tf_transformer.export.saving import calibration_batches, stored
    from tf_transformer.export.translation.folder import read_attention, read_description

    description = read_description(folder)
    before = description.get("decoding", {})
    names = {name: value for name, value in before.items() if name in _DECODING}
    model, tokenizer = load_transformer(folder)
    dtype = description.get("weights_dtype", "float32")
    weights_dtype = weights_dtype or dtype
    source = PairSource(**description["source"])
    batches = None
    if weights_dtype == "int8":
        batches = calibration_batches(tokenizer, source.split().train)
    model = stored(model, weights_dtype, batches)
    translator = Translator(model, tokenizer, **{**names, **decoding})
    after = json.loads(translator.decoding.settings)
    changes = {"decoding": after, "weights_dtype": weights_dtype}
    rounded = weights_dtype not in (dtype, "float32")
    if rounded or any(before.get(name) != after[name] for name in _RULES):
        pairs = source.split().test
        changes["scores"] = _printed(score(translator, pairs, source.target_language))
    save_translator(translator, path, {**description, **changes}, read_attention(folder))


def export_runs(runs, path, facts=None, weights_dtype="float32", **decoding):
    """Export the translator of a training run, or the ensemble of several, with its scores."""
    from tf_transformer.export import Translator, save_translator
    from tf_transformer.export.saving import calibration_batches, stored
    from tf_transformer.generation import Ensemble
    from tf_transformer.tokenizers import GraphTokenizer
    from tf_transformer.visualize import attention_svg, translation_attention

    run = runs[0]
    for other in runs[1:]:
        if other.source != run.source:  # its training pairs may be in the test split of the first
            raise ArgumentError(
                "folder",
                "runs with the same data",
                f"{run.source} in {run.folder} and {other.source} in {other.folder}",
            )
        if other.tokenizer_path.read_bytes() != run.tokenizer_path.read_bytes():
            raise ArgumentError(
                "folder",
                "runs with the same vocabulary",
                f"another one in {other.folder} than in {run.folder}",
                "Train them with the same --vocab-size and --subword.",
            )
    models = [one.best_model() for one in runs]
    model = models[0] if len(models) == 1 else Ensemble(models)
    tokenizer = GraphTokenizer.from_file(run.tokenizer_path)
    batches = None
    if weights_dtype == "int8":
        batches = calibration_batches(tokenizer, run.split.train)
    translator = Translator(stored(model, weights_dtype, batches), tokenizer, **decoding)
    scores = _printed(score(translator, run.split.test, run.source.target_language))
    description = {
        **run.description(),
        "model": model.get_config(),
        "weights": sum(one.count_params() for one in models),
        "weights_dtype": weights_dtype,
        "scores": scores,
        "command": "; ".join(dict.fromkeys(_command(one) for one in runs)),
        "decoding": json.loads(translator.decoding.settings),
        **(facts or {}),
    }
    sentence = sentences_to_show(run)[-1]
    attention = translation_attention(
        models[0], tokenizer, sentence, translated(translator, sentence)
    )
    save_translator(translator, path, description, attention_svg(*attention))
    return translator


def _printed(scores):
    print(f"BLEU {scores['bleu']}  {scores['bleu_signature']}")
    print(f"chrF {scores['chrf']}  {scores['chrf_signature']}")
    return scores


def sentences_to_show(run):
    """Return three sentences, for the user's own data the shortest of the test split."""
    shortest = sorted({source for source, _ in run.split.test}, key=lambda text: (len(text), text))
    return SENTENCES.get(run.source.corpus, shortest[2::-1])


def translated(translator, text):
    """Translate one text greedily."""
    from tf_transformer.export import translate_texts

    [translation] = translate_texts(translator, [text])
    return translation


def _command(run):
    """Return the command that repeats a run, even one that was resumed or exported separately."""
    from tf_transformer.models import architectures
    from tf_transformer.models.architectures import SIZES
    from tf_transformer.training import get_preset

    given = dataclasses.asdict(run.source)
    if run.validation is not None:
        files = dataclasses.asdict(run.validation)
        given["validation_file"] = tuple(value for value in files.values() if value)
    preset = get_preset(run.preset.name)
    given["preset"] = run.preset.name
    settled = run.split.train.vocabulary if run.source.prepared else ()
    for name in PRESET_OPTIONS:
        if name not in settled and getattr(run.preset, name) != getattr(preset, name):
            given[name] = str(getattr(run.preset, name))
    if run.preset.architecture != preset.architecture:
        sizes = {name: getattr(run.preset, name) for name in SIZES}
        name = architectures.named(run.preset.architecture, sizes)
        given["architecture"] = name or str(run.folder / "architecture.json")
    words = ["tf-transformer", "train"]
    for name, value in given.items():
        if value:
            values = (value,) if isinstance(value, str) else value
            words += [f"--{name.replace('_', '-')}", *values]
    return shlex.join(words)
