"""The command `evaluate`: BLEU and chrF of a translator."""

import json
import sys

from tf_transformer.cli.pair_arguments import (
    add_model_argument,
    add_pair_arguments,
    model_path,
    pair_source,
)
from tf_transformer.cli.tensorflow_start import import_tensorflow, require


def add_evaluate(commands):
    """Add the parser of this file."""
    evaluate = commands.add_parser(
        "evaluate", help="BLEU and chrF on the whole test split, or on a test set of your own"
    )
    evaluate.add_argument("--beam", action="store_true", help="use beam search (default: greedy)")
    add_model_argument(evaluate)
    add_pair_arguments(evaluate, "the model's own", "all sentences of a test set of your own")
    evaluate.set_defaults(run=_evaluate)


def _evaluate(options):
    from tf_transformer.data import PairSource, split_pairs

    require("sacrebleu", "train")
    import_tensorflow()
    from tf_transformer.export.translation import saved_translator as saved

    path = model_path(options.model)
    trained_on = PairSource(**saved.read_description(path)["source"])
    source = pair_source(options) or trained_on
    pairs = source.load()
    if source.corpus or source == trained_on:
        pairs = split_pairs(pairs).test
    scores = score(saved.load_translator(path), pairs, source.target_language, options.beam)
    print(json.dumps(scores, indent=2))


def score(translator, pairs, language, beam=False):
    """Translate the distinct sources of pairs, and score the translations."""
    from tf_transformer.data import group_references
    from tf_transformer.export import translate_texts
    from tf_transformer.training import score_translations

    sources, references = group_references(pairs)

    def progress(done):
        if sys.stderr.isatty():
            end = "\n" if done == len(sources) else ""
            print(f"\rtranslating {done}/{len(sources)}", end=end, file=sys.stderr, flush=True)

    translations = translate_texts(translator, sources, beam=beam, progress=progress)
    return score_translations(translations, references, language)
