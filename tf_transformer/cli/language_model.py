"""The commands `train-lm` and `generate`: a language model from plain text."""

from tf_transformer.cli.arguments import (
    add_run_arguments,
    add_sampling_arguments,
    new_folder,
    new_preset,
    sampling_options,
    text_source,
    train_run,
)
from tf_transformer.cli.tensorflow_start import import_tensorflow, require


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
        help="UTF-8, gzipped or not, a blank line between documents (default: the included English "
        "sentences, each a document)",
    )
    texts.add_argument(
        "--corpus", help="the first language of an included corpus: en-zh, zh-en, en-fr or fr-en"
    )
    presets = "small, minutes on two cores (default); tiny, seconds"
    add_run_arguments(train, presets, "runs/lm-TEXT-PRESET", "gpt2")
    train.set_defaults(run=_train)

    generate = commands.add_parser("generate", help="continue texts with a trained language model")
    generate.add_argument("text", nargs="*", help="beginnings of texts (default: one empty text)")
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
        help="tokens of a text, including its beginning (default: as many as the model can read)",
    )
    generate.set_defaults(run=_generate)


def _train(options):
    run, model = train_run(options, "LanguageModelRun", _new_run, {"tokenizers": "train"})
    if run is None:
        return
    from tf_transformer.generation import continue_texts

    print(f"Perplexity per token of the held-out documents: {run.perplexity(model):.2f}\n")
    tokenizer = run.tokenizer
    # The beginnings of held-out texts, preferably longer ones.
    unread = sorted(tokenizer.encode(run.validation_documents), key=lambda ids: len(ids) < 8)
    for text in continue_texts(model, tokenizer, tokenizer.decode(ids[:3] for ids in unread[:3])):
        print(text)
    print(f"\nModel: {run.folder}")


def _new_run(options):
    from tf_transformer.models import LanguageModel
    from tf_transformer.training import LANGUAGE_MODEL_PRESETS, LanguageModelRun

    preset = new_preset(options, LANGUAGE_MODEL_PRESETS, LanguageModel)
    source = text_source(options)
    folder = new_folder(options, f"runs/lm-{source.name}-{preset.name}", "train-lm")
    return LanguageModelRun(folder, source, preset)


def _generate(options):
    sampling = sampling_options(options)
    require("tokenizers", "train")
    import_tensorflow(optimize_graphs=False)
    from tf_transformer.generation import continue_texts
    from tf_transformer.training import LanguageModelRun

    run, texts = LanguageModelRun.open(options.folder), options.text or [""]
    how = {"max_length": options.max_length, "beam_size": options.beam, "sampling": sampling}
    for text in continue_texts(run.best_model(), run.tokenizer, texts, **how):
        print(text)
