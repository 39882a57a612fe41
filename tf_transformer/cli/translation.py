"""The command `translate`."""

import contextlib
import sys

from tf_transformer.cli.pair_arguments import add_model_argument, model_path
from tf_transformer.cli.tensorflow_start import import_tensorflow

# The settings of `Sampling` that have an option.
_SAMPLING = {
    "seed": (int, "of the random numbers (default: 0)"),
    "temperature": (float, "below 1 favors likely tokens (default: 1.0)"),
    "top_k": (int, "only the K most likely tokens (default: all)"),
    "top_p": (float, "only the most likely tokens with this total probability (default: 1.0)"),
}


def add_commands(commands):
    """Add the parser of this file.

    Args:
        commands: return value of `ArgumentParser.add_subparsers`.
    """
    translate = commands.add_parser(
        "translate", help="translate the arguments, a file, or standard input line by line"
    )
    translate.add_argument("text", nargs="*", help="sentences")
    translate.add_argument("--file", help="a text file of any size, one sentence per line")
    translate.add_argument(
        "--output",
        metavar="FILE",
        help="with --file: a new file for the translations; the same command resumes after a stop",
    )
    how = translate.add_mutually_exclusive_group()
    how.add_argument("--beam", action="store_true", help="use beam search (default: greedy)")
    how.add_argument(
        "--n-best",
        action="store_true",
        help="print the n-best list whose size was set when the model was exported (`export "
        "--n-best`): number of the text, score, translation",
    )
    how.add_argument("--sample", action="store_true", help="sample from the model's distribution")
    for name, (kind, meaning) in _SAMPLING.items():
        option = f"--{name.replace('_', '-')}"
        translate.add_argument(option, type=kind, help=f"with --sample: {meaning}")
    add_model_argument(translate)
    translate.set_defaults(run=_translate)


def _translate(options):
    if options.text and options.file is not None:
        raise ValueError("text, --file: expected one of them, got both.")
    if options.output and options.file is None:
        raise ValueError("--output: expected --file as well, got none.")
    if options.output and options.n_best:
        raise ValueError("--n-best: expected no --output, since it goes to standard output.")
    sampling = {name: getattr(options, name) for name in _SAMPLING}
    sampling = {name: value for name, value in sampling.items() if value is not None}
    if sampling and not options.sample:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in sampling)
        raise ValueError(f"{given}: expected --sample as well, got none.")
    from tf_transformer.data.readers import check_plain_text

    file = options.file
    if file is not None:
        check_plain_text(file, "--file")
    import_tensorflow(optimize_graphs=file is not None)
    from tf_transformer.cli.translating import print_translations, translate_to_file
    from tf_transformer.export import Sampling
    from tf_transformer.export.translation import saved_translator as saved

    how = {"beam": options.beam, "sample": Sampling(**sampling) if options.sample else None}
    path = model_path(options.model)
    translator = saved.load_translator(path)
    most = saved.read_description(path)["model"]["pe_input"] - 1  # one for the end token
    if options.output:
        translate_to_file(translator, file, options.output, most, **how)
        return
    if options.text:
        print_translations(translator, [options.text], options.n_best, most, **how)
        return
    # Read as bytes: a line that is not UTF-8 must not stop the others.
    with open(file, "rb") if file else contextlib.nullcontext(sys.stdin.buffer) as lines:
        chunks = _chunks(lines, 1024 if file else 1)
        print_translations(translator, chunks, options.n_best, most, **how)


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
