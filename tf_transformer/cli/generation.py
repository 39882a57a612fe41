"""The command generate."""

import json
from pathlib import Path

from tf_transformer.cli.arguments import (
    LANGUAGES,
    add_command,
    add_language_arguments,
    add_sampling_arguments,
    given,
    is_published,
    languages_of,
    option,
    sampling_options,
)
from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.errors import ArgumentError, MissingFileError

_OF_MODEL = ("max_new_tokens", "stop", *LANGUAGES)


def add_generate(commands):
    """Add the command `generate`."""
    generate = add_command(commands, "generate", _generate)
    generate.add_argument("text", nargs="*", help="beginnings of texts (default: one empty text)")
    add = generate.add_mutually_exclusive_group(required=True).add_argument
    # Not `run`, which is the function of the command.
    add("--run", dest="folder", metavar="FOLDER", help="the folder of `train-lm`")
    decoder = "a published decoder or translator in Hugging Face's layout, or what `export` made "
    decoder += "of it; prints each text while it is generated"
    add("--model", metavar="FOLDER", help=decoder)
    how = generate.add_mutually_exclusive_group()
    beams = "search with N beams (default: greedy, or what generation_config.json says)"
    how.add_argument("--beam", type=int, metavar="N", help=beams)
    add_sampling_arguments(generate, how)
    add = generate.add_argument
    most = "with --run: tokens of a text, including its beginning (default: as many as it can read)"
    add("--max-length", type=int, metavar="N", help=most)
    most = "with --model: tokens after the beginning (default: as generation_config.json says, 20)"
    add("--max-new-tokens", type=int, metavar="N", help=most)
    # Not several at once, which would take the texts after them.
    stop = "with --model: end a text before this string; may be given several times"
    add("--stop", action="append", metavar="STRING", help=stop)
    add_language_arguments(generate)


def _generate(options):
    """continue texts with a trained language model or a published decoder"""
    sampling, texts = sampling_options(options), options.text or [""]
    others = ("max_length",) if options.model is not None else _OF_MODEL
    if refused := given(options, others):
        needed = "--run" if options.model is not None else "--model"
        raise ArgumentError(", ".join(map(option, refused)), f"{needed} as well", "none")
    if options.model is not None:
        _generate_by_model(options, texts, sampling)
        return
    require("train", "tokenizers")
    import_tensorflow(optimize_graphs=False)
    from tf_transformer.generation import continue_texts
    from tf_transformer.training import LanguageModelRun

    run = LanguageModelRun.open(options.folder)
    how = {"max_length": options.max_length, "beam_size": options.beam, "sampling": sampling}
    for text in continue_texts(run.best_model(), run.tokenizer, texts, **how):
        print(text)


def _generate_by_model(options, texts, sampling):
    """Print continuations or translations, piece by piece unless they are searched."""
    import_tensorflow(optimize_graphs=False)
    from tf_transformer.export import stream_text
    from tf_transformer.functional.ids import check_range

    check_range("beam", options.beam, 1)
    check_range("max_new_tokens", options.max_new_tokens, 1)
    changes = {} if options.beam is None else {"num_beams": options.beam, "do_sample": False}
    model = text_generator(options, **changes)
    how = {"max_new_tokens": options.max_new_tokens or 0, "stop": options.stop or []}
    settings = json.loads(model.settings.numpy())
    begins = [""] * len(texts) if settings["translates"] else texts
    if sampling is None and settings["beams"]:
        found = model.generate(texts, **how).numpy()
        for begin, continuation in zip(begins, found, strict=True):
            print(f"{begin}{continuation.decode()}")
        return
    # A temperature, so that it is a sample even without other options.
    how |= {} if sampling is None else {"temperature": 1.0, **sampling}
    seed = how.pop("seed", 0)
    for number, (text, begin) in enumerate(zip(texts, begins, strict=True)):
        pieces = stream_text(model, text, seed=seed + number, **how)
        print(f"{begin}{next(pieces, '')}", end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()


def text_generator(options, **changes):
    """Load the `TextGenerator` of a published model, or an exported one, which has no changes."""
    from tf_transformer.export import TextGenerator
    from tf_transformer.export.saving import load_saved_model

    folder = options.model
    languages = languages_of(options, is_published(folder))
    if is_published(folder):
        require("bert", "safetensors")
        return TextGenerator.from_pretrained(folder, **languages, **changes)
    if not (Path(folder) / "saved_model.pb").is_file():
        expected = "a folder with a published model or what `export` made of it"
        raise MissingFileError("--model", expected, folder)
    model = load_saved_model(folder)
    if not hasattr(model, "generate"):
        raise ArgumentError("--model", "a text generator", f"another SavedModel, {folder}")
    if changes:
        raise ArgumentError("--beam", "a published model", f"an exported one, {folder}")
    return model
