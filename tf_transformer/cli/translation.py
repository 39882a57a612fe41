"""The commands translate and evaluate."""

import contextlib
import dataclasses
import functools
import json
import sys

from tf_transformer.cli.arguments import (
    add_command,
    add_language_arguments,
    add_model_argument,
    add_pair_arguments,
    add_sampling_arguments,
    is_published,
    languages_of,
    lite_model,
    model_path,
    pair_source,
    sampling_options,
    show_progress,
)
from tf_transformer.cli.generation import text_generator
from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.data.readers import one_line
from tf_transformer.errors import ArgumentError


def add_evaluate(commands):
    """Add the command `evaluate`."""
    evaluate = add_command(commands, "evaluate", _evaluate)
    evaluate.add_argument("--beam", action="store_true", help="use beam search (default: greedy)")
    add_model_argument(evaluate)
    add_pair_arguments(evaluate, "the model's own", "all sentences of a test set of your own")


def _evaluate(options):
    """BLEU and chrF on the whole test split, or on a test set of your own"""
    from tf_transformer.data import PairSource, split_pairs

    require("train", "sacrebleu")
    import_tensorflow()
    from tf_transformer.export.translation import folder as saved

    path = model_path(options.model)
    trained_on = PairSource(**saved.read_description(path)["source"])
    source = pair_source(options) or trained_on
    pairs = source.load()
    if source.corpus or source == trained_on:
        pairs = split_pairs(pairs).test
    scores = score(saved.load_translator(path), pairs, source.target_language, options.beam)
    print(json.dumps(scores, indent=2))


def score(translator, pairs, language, beam=False):
    """Translate the distinct sources of pairs and score the translations."""
    from tf_transformer.data import group_references
    from tf_transformer.export import translate_texts
    from tf_transformer.training import score_translations

    sources, references = group_references(pairs)

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
    how.add_argument(
        "--n-best",
        action="store_true",
        help="print the n-best list whose size was set when the model was exported (`export "
        "--n-best`): number of the text, score, translation",
    )
    add_sampling_arguments(translate, how)
    add_model_argument(translate)
    add_language_arguments(translate)


def _translate(options):
    """translate the arguments, a file, or standard input line by line"""
    if options.text and options.file is not None:
        raise ArgumentError("text, --file", "one of them", "both")
    if options.output and options.file is None:
        raise ArgumentError("--output", "--file as well", "none")
    if options.output and options.n_best:
        raise ArgumentError("--n-best", "no --output, since it goes to standard output")
    sampling = sampling_options(options)
    from tf_transformer.data.readers import check_plain_text

    file = options.file
    if file is not None:
        check_plain_text(file, "--file")
    lite = lite_model(options.model, "translator")
    if lite is not None:
        _translate_by_litert(lite, options)
        return
    import_tensorflow(optimize_graphs=file is not None, share_operations=False)
    if is_published(options.model):
        _translate_published(options, sampling)
        return
    languages_of(options, is_published=False)
    from tf_transformer.export import Sampling
    from tf_transformer.export.translation import folder as saved

    how = {"beam": options.beam, "sample": None if sampling is None else Sampling(**sampling)}
    path = model_path(options.model)
    translator = saved.load_translator(path)
    most = saved.read_description(path)["model"]["pe_input"] - 1  # one for the end token
    if options.output:
        _translate_to_file(translator, file, options.output, most, **how)
        return
    if options.text:
        _print_translations(translator, [options.text], options.n_best, most, **how)
        return
    with _lines(file) as lines:
        chunks = _chunks(lines, 1024 if file else 1)
        _print_translations(translator, chunks, options.n_best, most, **how)


def _lines(file):
    # As bytes: a line that is not UTF-8 must not stop the others.
    return open(file, "rb") if file else contextlib.nullcontext(sys.stdin.buffer)


def _translate_published(options, sampling):
    """Translate by a published model's own settings, 32 lines of a file at a time."""
    if options.beam or options.n_best or options.output:
        expected = "an exported translator for --beam, --n-best and --output"
        got = f"a published one, which decodes as its generation_config.json says: {options.model}"
        raise ArgumentError("--model", expected, got)
    model, chance = text_generator(options), dict(sampling or {})
    seed, done = chance.pop("seed", 0), 0
    translate = model.generate if sampling is None else model.sample
    with contextlib.nullcontext() if options.text else _lines(options.file) as lines:
        for texts in [options.text] if options.text else _chunks(lines, 32 if options.file else 1):
            for text in translate(texts, seed + done, **chance).numpy():
                print(one_line(text.decode()), flush=True)
            done += len(texts)


def _print_translations(translator, chunks, n_best, most, *, beam=False, sample=None):
    """Print the translations of texts, and warn about texts that are too long for the model."""
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
    """Run `translate_file`, showing its progress on a terminal."""
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
    """Translate greedily, line by line."""
    if options.beam or options.n_best or options.sample or options.output:
        expected = "a SavedModel for --beam, --n-best, --sample and --output"
        got = f"the output of litert, which decodes greedily: {options.model}"
        raise ArgumentError("--model", expected, got)
    if options.text:
        print("\n".join(map(one_line, lite.translate(options.text))))
        return
    with _lines(options.file) as lines:
        for chunk in _chunks(lines, 1):
            print(one_line(*lite.translate(chunk)), flush=True)


def _chunks(lines, size):
    from tf_transformer.data.readers import text_of_line

    chunk = []
    for number, line in enumerate(lines):
        chunk.append(text_of_line(line, first=number == 0))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
