"""The commands of translators: train, translate, evaluate, export."""

import contextlib
import json
import shlex
import sys
from pathlib import Path

from tf_transformer.cli.resuming import add_resume_argument, refuse_beside_resume
from tf_transformer.cli.tensorflow_start import import_tensorflow, require

SENTENCES = {
    "en-zh": ("I love China.", "Where is the station?", "He is reading a book."),
    "zh-en": ("我爱中国。", "车站在哪里?", "他在看书。"),
    "en-fr": ("I love you.", "Where is the station?", "He is reading a book."),
    "fr-en": ("Je t'aime.", "Où est la gare ?", "Il lit un livre."),
}

# The settings of a preset that have an argument.
_CHANGES = ("subword", "vocab_size", "epochs", "seed")


def add_commands(commands):
    """Add the parsers of this file.

    Args:
        commands: what `ArgumentParser.add_subparsers` returned.
    """
    train = commands.add_parser(
        "train", help="train a translator, score it, export it, translate three sentences"
    )
    _add_data_arguments(train, "en-zh", "your own sentences")
    train.add_argument(
        "--preset",
        help="small, minutes on two cores (default); tiny, seconds, learns next to nothing; base, "
        "the paper's, for large corpora and an accelerator",
    )
    train.add_argument(
        "--subword", help="bpe, wordpiece or unigram: what cuts words into tokens (default: bpe)"
    )
    train.add_argument("--vocab-size", type=int, help="instead of the preset's")
    train.add_argument("--epochs", type=int, help="instead of the preset's")
    train.add_argument("--seed", type=int, help="instead of the preset's")
    train.add_argument("--output", metavar="FOLDER", help="default: runs/DATA-PRESET")
    add_resume_argument(train)
    train.add_argument("--tensorboard", action="store_true", help="write logs for TensorBoard")
    train.set_defaults(run=_train)

    translate = commands.add_parser(
        "translate", help="translate the arguments, a file, or standard input line by line"
    )
    translate.add_argument("text", nargs="*", help="sentences")
    translate.add_argument("--file", help="a text file of any size, a sentence a line")
    translate.add_argument(
        "--output",
        metavar="FILE",
        help="with --file: a new file for the translations; after a stop the same command goes on",
    )
    translate.add_argument("--beam", action="store_true", help="by beam search (default: greedily)")
    translate.add_argument(
        "--n-best",
        action="store_true",
        help="all translations that the model was exported to give (`export --n-best`; the shipped "
        "model: 1): number of the text, score, translation",
    )
    add_model_argument(translate)
    translate.set_defaults(run=_translate)

    evaluate = commands.add_parser(
        "evaluate", help="BLEU and chrF on the whole test split, or on a test set of your own"
    )
    evaluate.add_argument("--beam", action="store_true", help="by beam search (default: greedily)")
    add_model_argument(evaluate)
    _add_data_arguments(evaluate, "the model's own", "all sentences of a test set of your own")
    evaluate.set_defaults(run=_evaluate)

    export = commands.add_parser("export", help="write the SavedModel of a training run")
    export.add_argument("folder", help="the run's folder")
    export.add_argument("--output", metavar="FOLDER", help="default: saved_model in the run")
    export.add_argument("--beam-size", type=int, help="of `translate --beam` (default: 5)")
    export.add_argument("--length-penalty", type=float, help="of the beam (default: 0.6)")
    export.add_argument("--n-best", type=int, help="translations of each text (default: 1)")
    export.add_argument("--min-length", type=int, help="tokens of a translation (default: 0)")
    export.add_argument(
        "--no-repeat-ngram",
        type=int,
        metavar="N",
        help="no N tokens twice (default: 0, never mind)",
    )
    export.add_argument(
        "--length-limit",
        type=int,
        nargs=2,
        metavar=("A", "B"),
        help="at most A times the tokens of the text, its end counted, and B (default: 2 10)",
    )
    export.add_argument(
        "--jit-compile",
        action="store_true",
        default=None,
        help="decode by XLA: less time for each text, seconds for the first of each size",
    )
    export.set_defaults(run=_export)


def _add_data_arguments(parser, default, own):
    parser.add_argument("--corpus", help=f"en-zh, zh-en, en-fr or fr-en (default: {default})")
    parser.add_argument("--source-file", help=f"{own}, one a line, UTF-8, gzipped or not")
    parser.add_argument("--target-file", help="their translations, line by line")
    parser.add_argument("--tsv", help="or one file: source, tab, target")


def add_model_argument(parser):
    """Add `--model`, an exported translator."""
    parser.add_argument(
        "--model", metavar="FOLDER", help="an exported model (default: the English-Chinese one)"
    )


def _train(options):
    from tf_transformer.data import PairSource

    if options.resume:
        refuse_beside_resume(options, allowed=("tensorboard",))
    for package in ("tokenizers", "sacrebleu"):
        require(package, "train")
    if options.tensorboard:
        require("tensorboard", "tensorboard")
    import_tensorflow()
    import keras

    from tf_transformer import training

    if options.resume:
        run = training.TrainingRun.open(options.resume)
    else:
        source = _pair_source(options) or PairSource(corpus="en-zh")
        changes = {name: getattr(options, name) for name in _CHANGES}
        preset = training.get_preset(options.preset or "small").with_changes(changes)
        folder = Path(options.output or f"runs/{source.name}-{preset.name}")
        if (folder / "run.json").exists():
            raise ValueError(
                f"{folder}: holds a training already. Go on with it: tf-transformer train "
                f"--resume {folder}; or delete it, or choose another with --output."
            )
        run = training.TrainingRun(folder, source, preset)
    callbacks = []
    if options.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(run.folder / "tensorboard"))
    try:
        run.train(callbacks)
    except KeyboardInterrupt:
        print(
            f"\nThe checkpoint is saved. Go on with: tf-transformer train --resume "
            f"{shlex.quote(str(run.folder))}",
            file=sys.stderr,
        )
        raise
    translator = _export_run(run, run.folder / "saved_model")
    print()
    for sentence in _sentences(run):
        print(f"{sentence}\t{_texts(translator, [sentence])[0]}")
    print(f"\nModel: {run.folder / 'saved_model'}")


def _translate(options):
    if options.text and options.file is not None:
        raise ValueError("text, --file: expected one of them, got both.")
    if options.output and options.file is None:
        raise ValueError("--output: expected --file beside it, got none.")
    if options.output and options.n_best:
        raise ValueError("--n-best: expected no --output beside it; it goes to standard output.")
    from tf_transformer.data.readers import check_plain_text

    file = options.file
    if file is not None:
        check_plain_text(file, "--file")
    import_tensorflow()
    from tf_transformer.cli.translating import print_translations, translate_to_file
    from tf_transformer.export import saved_translator as saved

    path = model_path(options.model)
    translator = saved.load_translator(path)
    most = saved.read_description(path)["model"]["pe_input"] - 1  # and the end token
    if options.output:
        translate_to_file(translator, file, options.output, options.beam, most)
        return
    if options.text:
        chunks = [options.text]
        print_translations(translator, chunks, options.beam, options.n_best, most)
        return
    # Line by line in bytes: a line that is not UTF-8 must not end the others.
    with open(file, "rb") if file else contextlib.nullcontext(sys.stdin.buffer) as lines:
        chunks = _chunks(lines, 1024 if file else 1)
        print_translations(translator, chunks, options.beam, options.n_best, most)


def _evaluate(options):
    from tf_transformer.data import PairSource, split_pairs

    require("sacrebleu", "train")
    import_tensorflow()
    from tf_transformer.export import saved_translator as saved

    path = model_path(options.model)
    trained_on = PairSource(**saved.read_description(path)["source"])
    source = _pair_source(options) or trained_on
    pairs = source.load()
    if source.corpus or source == trained_on:
        pairs = split_pairs(pairs).test
    scores = _score(saved.load_translator(path), pairs, source.target_language, options.beam)
    print(json.dumps(scores, indent=2))


def _export(options):
    import_tensorflow()
    from tf_transformer.data.replacing import check_replaceable
    from tf_transformer.export.translation.saved_translator import DESCRIPTION
    from tf_transformer.training import TrainingRun

    run = TrainingRun.open(options.folder)
    path = Path(options.output or run.folder / "saved_model")
    check_replaceable(path, only_with=DESCRIPTION)  # now, not after all translations
    names = (
        "beam_size",
        "length_penalty",
        "n_best",
        "min_length",
        "no_repeat_ngram",
        "length_limit",
        "jit_compile",
    )
    decoding = {name: getattr(options, name) for name in names}
    decoding = {name: value for name, value in decoding.items() if value is not None}
    _export_run(run, path, **decoding)
    print(f"Model: {path}")


def _export_run(run, path, **decoding):
    from tf_transformer.export import Translator
    from tf_transformer.export.translation.saved_translator import save_translator
    from tf_transformer.tokenizers import GraphTokenizer
    from tf_transformer.visualize import attention_svg, translation_attention

    model = run.best_model()
    translator = Translator(model, GraphTokenizer.from_file(run.tokenizer_path), **decoding)
    scores = _score(translator, run.split.test, run.source.target_language)
    print(f"BLEU {scores['bleu']}  {scores['bleu_signature']}")
    print(f"chrF {scores['chrf']}  {scores['chrf_signature']}")
    facts = {
        "model": model.get_config(),
        "weights": model.count_params(),
        "scores": scores,
        "command": _command(run),
        "decoding": json.loads(translator.decoding.settings),
    }
    sentence = _sentences(run)[-1]
    [translation] = _texts(translator, [sentence])
    attention = translation_attention(model, translator.tokenizer, sentence, translation)
    save_translator(translator, path, {**run.description(), **facts}, attention_svg(*attention))
    return translator


def _sentences(run):
    """Three sentences to show: for data of the user's own the shortest of the test split."""
    shortest = sorted({source for source, _ in run.split.test}, key=lambda text: (len(text), text))
    return SENTENCES.get(run.source.corpus, shortest[2::-1])


def _command(run):
    """The command that repeats a run, whatever the one that ended it was (`--resume`, `export`)."""
    from tf_transformer.training.runs.presets import get_preset

    given = {name: value for name, value in vars(run.source).items() if value}
    arguments = [f"--{name.replace('_', '-')} {shlex.quote(v)}" for name, v in given.items()]
    arguments.append(f"--preset {run.preset.name}")
    preset = get_preset(run.preset.name)
    for name in _CHANGES:
        if getattr(run.preset, name) != getattr(preset, name):
            arguments.append(f"--{name.replace('_', '-')} {getattr(run.preset, name)}")
    return " ".join(["tf-transformer train", *arguments])


def _score(translator, pairs, language, beam=False):
    from tf_transformer.data import group_references
    from tf_transformer.export.translation.translate_texts import translate_texts
    from tf_transformer.training.runs.scores import score_translations

    sources, references = group_references(pairs)

    def progress(done):
        if sys.stderr.isatty():
            end = "\n" if done == len(sources) else ""
            print(f"\rtranslating {done}/{len(sources)}", end=end, file=sys.stderr, flush=True)

    translations = translate_texts(translator, sources, beam=beam, progress=progress)
    return score_translations(translations, references, language)


def _texts(translator, texts):
    from tf_transformer.export.translation.translate_texts import translate_texts

    return translate_texts(translator, texts)


def model_path(folder):
    """The folder of an exported model, or of a run that has one; None: the shipped translator's."""
    from tf_transformer.export.translation.shipped_models import shipped_model

    path = Path(folder) if folder else shipped_model("en-zh")
    inside = path / "saved_model"  # the folder of a run serves too
    return inside if (path / "run.json").is_file() and inside.is_dir() else path


def _pair_source(options):
    from tf_transformer.data import PairSource

    names = ("corpus", "source_file", "target_file", "tsv")
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    # Whole paths, so that the run can be gone on with from another folder.
    files = {name: str(Path(file).resolve()) for name, file in given.items() if name != "corpus"}
    return PairSource(**{**given, **files}) if given else None


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
