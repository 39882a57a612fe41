"""Try other settings of a preset without using the test split: `python -m benchmarks try_preset`.

`python -m benchmarks try_preset rate=0.2 epochs=16` trains the small preset with these changes and
scores it on pairs held out from the training split, four times as many as in the validation split.
Prints the scores, and the translations of the closing sentences and of "Hello!", as JSON.
"""

import json
import tempfile


def main(parser, arguments):
    """Train and print the changes with the scores."""
    parser.add_argument("changes", nargs="*", metavar="FIELD=VALUE", help="fields of Preset")
    parser.add_argument("--preset", default="small", help="to change")
    parser.add_argument("--corpus", default="en-zh", help="of `load_corpus`")
    options = parser.parse_args(arguments)
    from tf_transformer import Translator
    from tf_transformer.cli.exporting import SENTENCES
    from tf_transformer.data import PairSource, group_references, split_pairs
    from tf_transformer.export import translate_texts
    from tf_transformer.tokenizers import GraphTokenizer
    from tf_transformer.training import PRESETS, TrainingRun, score_translations

    changes = dict(change.split("=") for change in options.changes)
    changes = {name: json.loads(value) for name, value in changes.items()}
    preset = PRESETS[options.preset].with_changes(changes)
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(folder, PairSource(corpus=options.corpus), preset)
        # The same test split, with a larger share of the rest for validation.
        run.split = split_pairs(run.source.load(), test_share=0.04, validation_share=0.09)
        translator = Translator(run.train(), GraphTokenizer.from_file(run.tokenizer_path))
    sources, references = group_references(run.split.validation)
    translations = translate_texts(translator, sources)
    scores = score_translations(translations, references, run.source.target_language)
    scores = {name: scores[name] for name in ("bleu", "chrf")}
    closing = translate_texts(translator, [*SENTENCES[options.corpus], "Hello!"])
    print(json.dumps({**changes, **scores, "closing": closing}, ensure_ascii=False))
