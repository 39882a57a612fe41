"""The commands that write a trained model in another form: export, compress and litert."""

import argparse
import dataclasses
import json
import shlex
import sys
from pathlib import Path

from tf_transformer.cli.arguments import (
    LANGUAGES,
    add_command,
    add_language_arguments,
    given,
    import_tensorflow,
    is_published,
    languages_of,
    option,
    require,
)
from tf_transformer.cli.inference import score
from tf_transformer.data.files import check_plain_text, check_replaceable, text_of_line
from tf_transformer.errors import ArgumentError, MissingFileError, check

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
# Those that a published decoder has too, as fields of generation_config.json.
_OF_DECODER = {"beam_size": "num_beams", "length_penalty": "length_penalty"}
_OF_DECODER |= {"min_length": "min_length", "no_repeat_ngram": "no_repeat_ngram_size"}
_EXAMPLES = 256  # texts for `litert`, unless --examples has fewer


def add_export(commands):
    """Add the command `export`."""
    export = add_command(commands, "export", _export)
    add = export.add_argument
    folder = "the folder of a run; several runs become one ensemble; an exported model; or a "
    folder += "published decoder or translator, such as GPT-2 or Marian, or BERT that answers "
    folder += "questions or labels tokens, in Hugging Face's layout"
    add("folder", nargs="+", help=folder)
    output = "default: saved_model in the run, if there is one run"
    add("--output", metavar="FOLDER", help=output)
    add("--beam-size", type=int, help="of `translate --beam` (default: 5)")
    add("--length-penalty", type=float, help="of beam search (default: 0.6)")
    add("--n-best", type=int, help="size of the n-best list (default: 1)")
    add("--min-length", type=int, help="minimum length in tokens (default: 0)")
    repeated = "never repeat a sequence of N tokens (default: 0, off)"
    add("--no-repeat-ngram", type=int, metavar="N", help=repeated)
    limit = "at most A times the tokens of the text, including its end, plus B (default: 2 10)"
    add("--length-limit", type=int, nargs=2, metavar=("A", "B"), help=limit)
    xla = "compile decoding with XLA: faster, but the first text of each size takes seconds "
    xla += "(default: on machines with a GPU)"
    add("--jit-compile", action=argparse.BooleanOptionalAction, help=xla)
    text = "of the weights in the files; the model computes in float32, except that int8 weights "
    text += "are multiplied as integers (default: float32)"
    add("--weights-dtype", choices=("float32", "float16", "bfloat16", "int8"), help=text)
    add_language_arguments(export)


def _export(options):
    """write the SavedModel of a run or a decoder, or an exported model with other settings"""
    import_tensorflow()
    from tf_transformer.export.spans import text_model_for

    if any(is_published(folder) or text_model_for(folder) for folder in options.folder):
        _export_published(options)
        return
    languages_of(options, has_languages=False)
    from tf_transformer.export.translation.folder import DESCRIPTION
    from tf_transformer.training import TrainingRun

    exported = [folder for folder in options.folder if (Path(folder) / DESCRIPTION).is_file()]
    is_one = len(options.folder) == 1
    has_output = options.output is not None or (is_one and not exported)
    check(has_output, "--output", "a folder for the ensemble or the copy", "none")
    path = Path(options.output or Path(*options.folder) / "saved_model")
    decoding = given(options, _DECODING)
    got = f"{', '.join(exported)} among {len(options.folder)} folders"
    check(is_one or not exported, "folder", "runs only, or one exported model", got)
    runs = [] if exported else [TrainingRun.open(folder) for folder in options.folder]
    check_replaceable(path, only_with=DESCRIPTION)  # before the translations, which take minutes
    if exported:
        _export_again(exported[0], path, options.weights_dtype, decoding)
    else:
        export_runs(runs, path, weights_dtype=options.weights_dtype or "float32", **decoding)
    print(f"Model: {path}")


def _export_published(options):
    require("bert", "safetensors")
    from tf_transformer.export import TextGenerator
    from tf_transformer.export.spans import text_model_for

    if len(options.folder) > 1 or options.output is None:
        raise ArgumentError("folder, --output", "one published model and a folder", "others")
    made = text_model_for(*options.folder)
    names = {} if made else _OF_DECODER
    others = [name for name in (*_DECODING, "weights_dtype") if name not in names]
    others += LANGUAGES if made else ()
    refused = ", ".join(map(option, given(options, others)))
    check(not refused, refused, "none with a published model", "some")
    changes = {names[name]: value for name, value in given(options, names).items()}
    changes |= languages_of(options, has_languages=True)
    check_replaceable(options.output, only_with="saved_model.pb")
    (made or TextGenerator).from_pretrained(*options.folder, **changes).save(options.output)
    print(f"Model: {options.output}")


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
    is_int8 = weights_dtype == "int8"
    batches = calibration_batches(tokenizer, source.split().train) if is_int8 else None
    model = stored(model, weights_dtype, batches)
    translator = Translator(model, tokenizer, **{**names, **decoding})
    after = json.loads(translator.decoding.settings)
    changes = {"decoding": after, "weights_dtype": weights_dtype}
    rounded = weights_dtype not in (dtype, "float32")
    if rounded or any(before.get(name) != after[name] for name in _RULES):
        changes["scores"] = _scored(translator, source.split().test, source.target_language)
    save_translator(translator, path, {**description, **changes}, read_attention(folder))


def export_runs(runs, path, facts=None, weights_dtype="float32", **decoding):
    """Export the translator of a training run, or the ensemble of several, with its scores."""
    from tf_transformer.export import Translator, save_translator, translate_texts
    from tf_transformer.export.saving import calibration_batches, stored
    from tf_transformer.generation import Ensemble
    from tf_transformer.tokenizers import GraphTokenizer
    from tf_transformer.visualize import attention_svg, translation_attention

    run = runs[0]
    for other in runs[1:]:
        if other.source != run.source:  # its training pairs may be in the test split of the first
            got = f"{run.source} in {run.folder} and {other.source} in {other.folder}"
            raise ArgumentError("folder", "runs with the same data", got)
        if other.tokenizer_path.read_bytes() != run.tokenizer_path.read_bytes():
            got = f"another one in {other.folder} than in {run.folder}"
            remedy = "Train them with the same --vocab-size and --subword."
            raise ArgumentError("folder", "runs with the same vocabulary", got, remedy)
    models = [one.best_model() for one in runs]
    model = models[0] if len(models) == 1 else Ensemble(models)
    tokenizer = GraphTokenizer.from_file(run.tokenizer_path)
    is_int8 = weights_dtype == "int8"
    batches = calibration_batches(tokenizer, run.split.train) if is_int8 else None
    translator = Translator(stored(model, weights_dtype, batches), tokenizer, **decoding)
    description = {
        **run.description(),
        "model": model.get_config(),
        "weights": sum(one.count_params() for one in models),
        "weights_dtype": weights_dtype,
        "scores": _scored(translator, run.split.test, run.source.target_language),
        "command": "; ".join(dict.fromkeys(_command(one) for one in runs)),
        "decoding": json.loads(translator.decoding.settings),
        **(facts or {}),
    }
    sentence = sentences_to_show(run)[-1]
    [translation] = translate_texts(translator, [sentence])
    attention = translation_attention(models[0], tokenizer, sentence, translation)
    save_translator(translator, path, description, attention_svg(*attention))
    return translator


def _scored(translator, pairs, language):
    scores = score(translator, pairs, language)
    print(f"BLEU {scores['bleu']}  {scores['bleu_signature']}")
    print(f"chrF {scores['chrf']}  {scores['chrf_signature']}")
    return scores


def sentences_to_show(run):
    """Return three sentences, for the user's own data the shortest of the test split."""
    shortest = sorted({source for source, _ in run.split.test}, key=lambda text: (len(text), text))
    return SENTENCES.get(run.source.corpus, shortest[2::-1])


def _command(run):
    """Return the command that repeats a run, even one that was resumed or exported separately."""
    from tf_transformer.models import architectures
    from tf_transformer.models.architectures import SIZES
    from tf_transformer.training import get_preset

    settings = dataclasses.asdict(run.source)
    if run.validation is not None:
        files = dataclasses.asdict(run.validation)
        settings["validation_file"] = tuple(value for value in files.values() if value)
    preset = get_preset(run.preset.name)
    settings["preset"] = run.preset.name
    settled = run.split.train.vocabulary if run.source.prepared else ()
    for name in PRESET_OPTIONS:
        if name not in settled and getattr(run.preset, name) != getattr(preset, name):
            settings[name] = str(getattr(run.preset, name))
    if run.preset.architecture != preset.architecture:
        sizes = {name: getattr(run.preset, name) for name in SIZES}
        name = architectures.named(run.preset.architecture, sizes)
        settings["architecture"] = name or str(run.folder / "architecture.json")
    words = ["tf-transformer", "train"]
    for name, value in settings.items():
        if value:
            values = (value,) if isinstance(value, str) else value
            words += [option(name), *values]
    return shlex.join(words)


def add_compress(commands):
    """Add the command `compress`."""
    add = add_command(commands, "compress", _compress).add_argument
    add("recipe", metavar="RECIPE", help="a JSON file, see docs/compression.md")
    output = "a new folder, or the folder of an interrupted call to resume it"
    add("--output", metavar="FOLDER", required=True, help=output)


def _compress(options):
    """distil, prune and quantize a model by a recipe, and measure each step"""
    require("train", "matplotlib", "sacrebleu", "safetensors", "tokenizers")
    import_tensorflow()
    from tf_transformer.compression.recipes import Recipe
    from tf_transformer.export import compress

    compress(Recipe.read(options.recipe), options.output, verbose=1 if sys.stdout.isatty() else 2)
    print(f"Table: {options.output}/README.md")


def add_litert(commands):
    """Add the command `litert`."""
    add = add_command(commands, "litert", _litert).add_argument
    add("folder", help="a training run, the output of finetune, or a BERT checkpoint")
    add("--output", metavar="FOLDER", required=True)
    text = "int8 rounds the operands of products, full int8 also values between products, with "
    text += "ranges from examples (default: float32)"
    dtypes = ("float32", "float16", "int8", "full int8")
    add("--weights-dtype", default="float32", choices=dtypes, help=text)
    text = "texts, one per line, for the check and the ranges of full int8 (default: the training "
    text += "texts of a run; otherwise words of the vocabulary)"
    add("--examples", metavar="FILE", help=text)


def _litert(options):
    """write a model for LiteRT, which runs without TensorFlow, and check it"""
    require("lite", "ai_edge_litert", "tokenizers")
    folder = Path(options.folder)
    examples = options.examples and _lines(options.examples)
    import_tensorflow()
    from tf_transformer.export import write_litert
    from tf_transformer.litert import DESCRIPTION
    from tf_transformer.tokenizers import TokenizerFile
    from tf_transformer.training import TrainingRun

    check_replaceable(options.output, only_with=DESCRIPTION)
    if (folder / "run.json").is_file():
        run, settings = TrainingRun.open(folder), {}
        examples = examples or [source for source, _ in run.split.train[:_EXAMPLES]]
        model, tokenizer_file = run.best_model(), TokenizerFile.read(run.tokenizer_path)
    else:
        model, tokenizer_file, settings = _of_bert(folder)
    settings |= {"weights_dtype": options.weights_dtype, "examples": examples}
    report = write_litert(model, tokenizer_file, options.output, **settings)
    print(
        f"{report['bytes'] / 2**20:.1f} MiB, at most {report['difference']:.2g} of the largest "
        f"number of an output from the model\nModel: {options.output}"
    )


def _of_bert(folder):
    """Return the model, its vocabulary, and the settings for texts."""
    from tf_transformer.export.text_models import read_text_settings
    from tf_transformer.models import bert
    from tf_transformer.models.bert.checkpoints.config_files import read_json
    from tf_transformer.models.bert.text_inputs import read_tokenizer_file

    inside, result = folder / "model", folder / "result.json"  # of finetune
    folder = inside if (inside / "config.json").is_file() else folder
    if not (folder / "config.json").is_file():
        checkpoint = "a BERT checkpoint in Hugging Face's layout"
        expected = f"a training run, the output of finetune, or {checkpoint}"
        raise MissingFileError("folder", expected, folder)
    names = read_json(folder / "config.json").get("architectures") or ["BertModel"]
    name = str(names[0] if isinstance(names, list) else names).replace("Albert", "Bert")
    classifier = bert.BertForSequenceClassification
    kinds = {"BertForSequenceClassification": classifier, "BertModel": bert.SentenceEncoder}
    remedy = "Other heads and early exit have no form for LiteRT."
    check(name in kinds, "folder", "a classifier or an encoder", f"{name} in {folder}", remedy)
    model = kinds[name].from_pretrained(folder)
    longest, lowercase = read_text_settings(folder, model.config.max_length)
    if kinds[name] is classifier and result.is_file():
        longest = read_json(result)["settings"]["max_length"]
    return model, read_tokenizer_file(folder), {"max_length": longest, "lowercase": lowercase}


def _lines(path):
    check_plain_text(path, "--examples")
    with open(path, "rb") as file:
        lines = [text_of_line(line, first=n == 0).strip() for n, line in enumerate(file)]
    lines = [line for line in lines if line][:_EXAMPLES]
    check(lines, "--examples", f"a text in {path}", "none")
    return lines
