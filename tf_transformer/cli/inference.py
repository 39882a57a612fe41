"""The commands that run a model: translate, evaluate, generate, info, explore and serve."""

import contextlib
import dataclasses
import functools
import itertools
import json
import sys
from pathlib import Path

from tf_transformer import data
from tf_transformer.cli.arguments import (
    LANGUAGES,
    add_command,
    add_language_arguments,
    add_model_argument,
    add_pair_arguments,
    add_sampling_arguments,
    given,
    import_tensorflow,
    is_published,
    languages_of,
    lite_model,
    model_path,
    option,
    pair_source,
    require,
    sampling_options,
    show_progress,
)
from tf_transformer.data.files import check_plain_text, one_line, text_of_line
from tf_transformer.errors import ArgumentError, MissingFileError, check

_OF_MODEL = ("max_new_tokens", "stop", *LANGUAGES)
_LIMITS = {
    "most_batch": "texts that the model computes together (default: 32)",
    "most_waiting": "texts that may wait; further requests get 503 (default: 256)",
    "most_texts": "texts of a request (default: 64)",
    "most_characters": "characters of a text (default: 5000)",
    "most_new_tokens": "tokens that a language model adds to a text (default: 512)",
}


def add_evaluate(commands):
    """Add the command `evaluate`."""
    evaluate = add_command(commands, "evaluate", _evaluate)
    evaluate.add_argument("--beam", action="store_true", help="use beam search (default: greedy)")
    add_model_argument(evaluate)
    add_pair_arguments(evaluate, "the model's own", "all sentences of a test set of your own")


def _evaluate(options):
    """BLEU and chrF on the whole test split, or on a test set of your own"""
    require("train", "sacrebleu")
    import_tensorflow()
    from tf_transformer.export.translation import folder as saved

    path = model_path(options.model)
    trained_on = data.PairSource(**saved.read_description(path)["source"])
    source = pair_source(options) or trained_on
    pairs = source.load()
    if source.corpus or source == trained_on:
        pairs = data.split_pairs(pairs).test
    scores = score(saved.load_translator(path), pairs, source.target_language, options.beam)
    print(json.dumps(scores, indent=2))


def score(translator, pairs, language, beam=False):
    """Translate the distinct sources of pairs and score the translations."""
    from tf_transformer.export import translate_texts
    from tf_transformer.training import score_translations

    sources, references = data.group_references(pairs)

    def progress(done):
        show_progress(f"translating {done}/{len(sources)}", done == len(sources))

    translations = translate_texts(translator, sources, beam=beam, progress=progress)
    return score_translations(translations, references, language)


def add_translate(commands):
    """Add the command `translate`."""
    translate = add_command(commands, "translate", _translate)
    add = translate.add_argument
    add("text", nargs="*", help="sentences")
    add("--file", help="a text file of any size, one sentence per line")
    output = "with --file: a new file for the translations; the same command resumes it"
    add("--output", metavar="FILE", help=output)
    how = translate.add_mutually_exclusive_group()
    how.add_argument("--beam", action="store_true", help="use beam search (default: greedy)")
    text = "print the n-best list whose size was set when the model was exported (`export "
    text += "--n-best`): number of the text, score, translation"
    how.add_argument("--n-best", action="store_true", help=text)
    add_sampling_arguments(translate, how)
    add_model_argument(translate)
    add_language_arguments(translate)


def _translate(options):
    """translate the arguments, a file, or standard input line by line"""
    check(not options.text or options.file is None, "text, --file", "one of them", "both")
    check(not options.output or options.file is not None, "--output", "--file as well", "none")
    if options.output and options.n_best:
        raise ArgumentError("--n-best", "no --output, since it goes to standard output")
    sampling = sampling_options(options)
    if options.file is not None:
        check_plain_text(options.file, "--file")
    lite = lite_model(options.model, "translator")
    if lite is not None:
        _translate_by_litert(lite, options)
        return
    import_tensorflow(optimize_graphs=options.file is not None, share_operations=False)
    if _is_generator(options.model):
        _translate_published(options, sampling)
        return
    languages_of(options, has_languages=False)
    from tf_transformer.export import Sampling
    from tf_transformer.export.translation import folder as saved

    how = {"beam": options.beam, "sample": None if sampling is None else Sampling(**sampling)}
    path = model_path(options.model)
    translator = saved.load_translator(path)
    most = saved.read_description(path)["model"]["pe_input"] - 1  # one for the end token
    if options.output:
        _translate_to_file(translator, options.file, options.output, most, **how)
        return
    _print_translations(translator, _texts(options, 1024), options.n_best, most, **how)


def _texts(options, size):
    """Yield lists of texts: the arguments, `size` lines of the file, or each line of the input."""
    if options.text:
        yield options.text
        return
    # As bytes: a line that is not UTF-8 must not stop the others.
    stream = contextlib.nullcontext(sys.stdin.buffer)
    with open(options.file, "rb") if options.file else stream as raw:
        lines = (text_of_line(line, first=number == 0) for number, line in enumerate(raw))
        while texts := list(itertools.islice(lines, size if options.file else 1)):
            yield texts


def _is_generator(folder):
    """Whether a folder has a published decoder or translator, or what `export` made of one."""
    if folder is None:
        return False
    from tf_transformer.export.translation.folder import DESCRIPTION

    is_saved = (Path(folder) / "saved_model.pb").is_file()
    return is_published(folder) or (is_saved and not (Path(folder) / DESCRIPTION).is_file())


def _translate_published(options, sampling):
    """Translate by a published model's own settings, 32 lines of a file at a time."""
    from tf_transformer.models.hugging_face.folders import published_type
    from tf_transformer.models.hugging_face.translators import TRANSLATORS

    expected = "a translator that was trained here for --beam, --n-best and --output"
    got = f"a published one, which decodes as its generation_config.json says: {options.model}"
    check(not (options.beam or options.n_best or options.output), "--model", expected, got)
    of_decoder = f"a decoder, {options.model}", "Continue texts with `generate`."
    if is_published(options.model):  # before its weights are read
        is_translator = published_type(options.model) in TRANSLATORS
        check(is_translator, "--model", "a translator", *of_decoder)
    model, settings, languages = text_generator(options)
    check(settings["translates"], "--model", "a translator", *of_decoder)
    chance = dict(sampling or {})
    seed, done = chance.pop("seed", 0), 0
    translate = functools.partial(model.generate if sampling is None else model.sample, **languages)
    for texts in _texts(options, 32):
        for text in translate(texts, seed + done, **chance).numpy():
            print(one_line(text.decode()), flush=True)
        done += len(texts)


def _print_translations(translator, chunks, n_best, most, *, beam=False, sample=None):
    from tf_transformer.export import n_best_translations, translate_texts

    done = 0
    for texts in chunks:
        counted = functools.partial(_warn, most, done + 1)
        if n_best:
            results = n_best_translations(translator, texts, counted=counted)
            for number, found in enumerate(results, done + 1):
                for translation, score in found:
                    if score > -float("inf"):
                        print(f"{number}\t{score:.4f}\t{one_line(translation)}")
        else:
            part = sample and dataclasses.replace(sample, seed=sample.seed + done)
            how = {"beam": beam, "sample": part, "counted": counted}
            for translation in translate_texts(translator, texts, **how):
                print(one_line(translation))
        sys.stdout.flush()
        done += len(texts)


def _translate_to_file(translator, source, target, most, **how):
    from tf_transformer.export import translate_file

    def progress(lines, share):
        show_progress(f"{lines:,} lines, {share:.0%}", share == 1)

    try:
        how |= {"progress": progress, "counted": functools.partial(_warn, most)}
        translate_file(translator, source, target, **how)
    except KeyboardInterrupt:
        kept = "The translations so far are kept. Run the same command again to resume."
        print(f"\n{kept}", file=sys.stderr)
        raise


def _warn(most, first, counts):
    for number, length in enumerate(counts, start=first):
        if length > most:
            what = f"text {number} has {length} tokens; the model reads {most}"
            rest = "so the rest is left out. Split it into sentences."
            print(f"tf-transformer: {what}, {rest}", file=sys.stderr)


def _translate_by_litert(lite, options):
    if options.beam or options.n_best or options.sample or options.output:
        expected = "a SavedModel for --beam, --n-best, --sample and --output"
        got = f"the output of litert, which decodes greedily: {options.model}"
        raise ArgumentError("--model", expected, got)
    for texts in _texts(options, 1):
        for translation in lite.translate(texts):
            print(one_line(translation), flush=True)


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
    from tf_transformer.functional.tensors import check_range

    check_range("beam", options.beam, 1)
    check_range("max_new_tokens", options.max_new_tokens, 1)
    changes = {} if options.beam is None else {"num_beams": options.beam, "do_sample": False}
    model, settings, languages = text_generator(options, **changes)
    how = {"max_new_tokens": options.max_new_tokens or 0, "stop": options.stop or []}
    begins = [""] * len(texts) if settings["translates"] else texts
    if sampling is None and settings["beams"]:
        found = model.generate(texts, **how, **languages).numpy()
        for begin, continuation in zip(begins, found, strict=True):
            print(f"{begin}{continuation.decode()}")
        return
    # A temperature, so that it is a sample even without other options.
    how |= {} if sampling is None else {"temperature": 1.0, **sampling}
    seed = how.pop("seed", 0)
    languages = {name: language for name, [language] in languages.items()}
    for number, (text, begin) in enumerate(zip(texts, begins, strict=True)):
        pieces = stream_text(model, text, seed=seed + number, **how, **languages)
        print(f"{begin}{next(pieces, '')}", end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()


def text_generator(options, **changes):
    """Load a published model, or an exported one: it, its settings, and languages for its calls."""
    from tf_transformer.export import TextGenerator
    from tf_transformer.export.saving import load_saved_model

    folder = options.model
    if is_published(folder):
        require("bert", "safetensors")
        languages = languages_of(options, has_languages=True)
        model = TextGenerator.from_pretrained(folder, **languages, **changes)
        return model, json.loads(model.settings.numpy()), {}  # it has its languages
    if not (Path(folder) / "saved_model.pb").is_file():
        expected = "a folder with a published model or what `export` made of it"
        raise MissingFileError("--model", expected, folder)
    model = load_saved_model(folder)
    got = f"another SavedModel, {folder}"
    check(hasattr(model, "generate"), "--model", "a text generator or translator", got)
    check(not changes, "--beam", "a published model", f"an exported one, {folder}")
    settings = json.loads(model.settings.numpy())
    languages = languages_of(options, bool(settings["languages"]))
    return model, settings, {name: [language] for name, language in languages.items()}


def add_info(commands):
    """Add the command `info`."""
    info = add_command(commands, "info", _info)
    info.add_argument("name", nargs="?", help="bert-base, albert-base, ..., or a folder")
    add_model_argument(info)


def _info(options):
    """describe a model: data, sizes, scores; or the parameters of a BERT"""
    check(options.name is None or options.model is None, "name, --model", "one of them", "both")
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


def add_explore(commands):
    """Add the command `explore`."""
    add = add_command(commands, "explore", _explore).add_argument
    text = "a text; or a pair, for a translator a text and its translation"
    add("text", nargs="+", help=text)
    text = "an exported translator, the run of one, or a BERT checkpoint with its vocabulary "
    text += "(default: the English-Chinese translator)"
    add("--model", metavar="FOLDER", help=text)
    add("--output", metavar="FILE", default="attention.html", help="default: attention.html")
    add("--lang", choices=("en", "zh"), default="en", help="of the page (default: en)")


def _explore(options):
    """write a page that shows what a model attends to in a text"""
    check(len(options.text) <= 2, "text", "one or two", len(options.text), "Quote each text.")
    import_tensorflow()
    from tf_transformer.visualize import explorer

    folder = Path(options.model) if options.model else model_path(None)
    path = explorer(folder, options.text, options.output, lang=options.lang)
    print(f"Page: {path}")


def add_serve(commands):
    """Add the command `serve`."""
    serve = add_command(commands, "serve", _serve)
    add_model_argument(serve)
    add = serve.add_argument
    add("--beam", action="store_true", help="translate with beam search")
    add_language_arguments(serve)
    host = "0.0.0.0 to accept requests from other machines (default: 127.0.0.1)"
    add("--host", default="127.0.0.1", help=host)
    add("--port", type=int, default=8000, help="(default: 8000)")
    for name, text in _LIMITS.items():
        add(option(name), type=int, metavar="N", help=text)


def _serve(options):
    """serve a translator, text generator or BERT model over HTTP"""
    require("serve", "fastapi", "uvicorn", "prometheus_client")
    import_tensorflow(optimize_graphs=False, share_operations=False)
    import uvicorn

    from tf_transformer.serving import Limits, Task, create_app

    limits = Limits(**given(options, _LIMITS))
    languages = languages_of(options, is_published(options.model))
    task = Task(model_path(options.model), beam=options.beam, **languages)
    print(f"POST http://{options.host}:{options.port}/{task.name}, see /docs", flush=True)
    address = {"host": options.host, "port": options.port}
    app = create_app(task, limits)
    uvicorn.run(app, **address, log_level="warning", timeout_graceful_shutdown=30)
