"""The commands `train-lm` and `generate`: a language model from plain text."""

from pathlib import Path

from tf_transformer.cli.arguments import OPTIONS as DEVICE_OPTIONS
from tf_transformer.cli.arguments import (
    add_accumulate_argument,
    add_architecture_argument,
    add_device_arguments,
    add_precision_argument,
    add_resume_argument,
    add_sampling_arguments,
    architecture_changes,
    check_new_run,
    refuse_beside_resume,
    resumable,
    sampling_options,
    start_training,
)
from tf_transformer.cli.tensorflow_start import import_tensorflow, require

# The settings of a preset that have an option.
_CHANGES = ("vocab_size", "epochs", "seed", "precision", "accumulate")


def add_commands(commands):
    """Add the parsers of this file."""
    train = commands.add_parser(
        "train-lm", help="train a language model on plain text, and continue three texts"
    )
    texts = train.add_mutually_exclusive_group()
    texts.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="UTF-8, gzipped or not, a blank line between documents (default: the embedded English "
        "sentences, each a document)",
    )
    texts.add_argument(
        "--corpus", help="the first language of an embedded corpus: en-zh, zh-en, en-fr or fr-en"
    )
    train.add_argument("--preset", help="small, minutes on two cores (default); tiny, seconds")
    train.add_argument("--vocab-size", type=int, help="instead of the preset's")
    train.add_argument("--epochs", type=int, help="instead of the preset's")
    train.add_argument("--seed", type=int, help="instead of the preset's")
    add_accumulate_argument(train)
    add_precision_argument(train)
    add_architecture_argument(train, "gpt2")
    train.add_argument("--output", metavar="FOLDER", help="default: runs/lm-TEXT-PRESET")
    add_resume_argument(train)
    add_device_arguments(train)
    train.set_defaults(run=_train)

    generate = commands.add_parser("generate", help="continue texts with a trained language model")
    generate.add_argument("text", nargs="*", help="how each text begins (default: one empty text)")
    # Not `run`, which is the function of the command.
    generate.add_argument(
        "--run", dest="folder", required=True, metavar="FOLDER", help="the folder of `train-lm`"
    )
    how = generate.add_mutually_exclusive_group()
    how.add_argument("--beam", type=int, metavar="N", help="search with N beams (default: greedy)")
    add_sampling_arguments(generate, how)
    generate.add_argument(
        "--max-length",
        type=int,
        metavar="N",
        help="tokens of a text, its beginning included (default: as many as the model can read)",
    )
    generate.set_defaults(run=_generate)


def _train(options):
    if options.resume:
        refuse_beside_resume(options, allowed=DEVICE_OPTIONS)
    require("tokenizers", "train")
    scope = start_training(options)
    from tf_transformer.distribution import current_workers, together
    from tf_transformer.generation import continue_texts
    from tf_transformer.tokenizers import Tokenizer
    from tf_transformer.training import LanguageModelRun

    with together():
        run = LanguageModelRun.open(options.resume) if options.resume else _new_run(options)
    with resumable(run.folder, "train-lm"), scope:
        model = run.train()
    if not current_workers().is_chief:
        return
    print(f"Perplexity per token of the held-out documents: {run.perplexity(model):.2f}\n")
    tokenizer = Tokenizer.load(run.tokenizer_path)
    # The beginnings of texts that the model has not read, of longer ones if there are some.
    unread = sorted(tokenizer.encode(run.validation_documents), key=lambda ids: len(ids) < 8)
    for text in continue_texts(model, tokenizer, tokenizer.decode(ids[:3] for ids in unread[:3])):
        print(text)
    print(f"\nModel: {run.folder}")


def _new_run(options):
    from tf_transformer.data import TextSource
    from tf_transformer.models import LanguageModel
    from tf_transformer.training import LANGUAGE_MODEL_PRESETS, LanguageModelRun, get_preset

    changes = {name: getattr(options, name) for name in _CHANGES}
    if options.architecture:
        changes |= architecture_changes(options.architecture, LanguageModel)
    preset = get_preset(options.preset or "small", LANGUAGE_MODEL_PRESETS).with_changes(changes)
    # Absolute paths, so that the run can be resumed from another folder.
    files = tuple(str(Path(file).resolve()) for file in options.text or ())
    source = TextSource(None if files else options.corpus or "en-zh", files)
    folder = Path(options.output or f"runs/lm-{source.name}-{preset.name}")
    check_new_run(folder, "run.json", "train-lm", "training", "choose another folder")
    return LanguageModelRun(folder, source, preset)


def _generate(options):
    sampling = sampling_options(options)
    require("tokenizers", "train")
    import_tensorflow(optimize_graphs=False)
    from tf_transformer.generation import continue_texts
    from tf_transformer.training import LanguageModelRun

    model, tokenizer = LanguageModelRun.best_model(options.folder)
    texts = options.text or [""]
    how = {"max_length": options.max_length, "beam_size": options.beam, "sampling": sampling}
    for text in continue_texts(model, tokenizer, texts, **how):
        print(text)
