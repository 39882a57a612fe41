"""Exported translators compared: `python -m benchmarks translators FOLDER FOLDER [--name NAME]`.

Translates the test split of the corpus with each one, greedily and with its beams; scores the
translations, and times sentences one by one and in batches of 64, with every model in turn. Writes
results/PROCESSOR/translators-NAME.md.
"""

import random

from benchmarks.harness.report import write_result

ROWS = (1, 64)
TIMED = 256  # sentences


def main(parser, arguments):
    """Score, time, write."""
    parser.add_argument("folders", nargs="+", help="exported translators, the first is 1")
    parser.add_argument("--name", required=True, help="of the result")
    parser.add_argument("--rounds", type=int, default=5, help="timed, after two to warm up")
    options = parser.parse_args(arguments)
    from tf_transformer.data import group_references, load_corpus, split_pairs
    from tf_transformer.export import load_translator, translate_texts
    from tf_transformer.export.chain import relative, seconds_of
    from tf_transformer.export.translation.folder import read_description
    from tf_transformer.training import score_translations

    models = {folder: load_translator(folder) for folder in options.folders}
    cards = {folder: read_description(folder) for folder in models}
    [corpus] = {card["source"]["corpus"] for card in cards.values()}
    sentences, references = group_references(split_pairs(load_corpus(corpus)).test)
    timed = random.Random(1).sample(sentences, TIMED)
    lines = [
        "| layers | weights | search | BLEU | time for 1 | for 64 |",
        "|---|---|---|---|---|---|",
    ]
    for search, method in (("greedy", "translate"), ("beam", "translate_beam")):
        calls = {folder: getattr(model, method) for folder, model in models.items()}
        times = [seconds_of(calls, timed, rows, most=TIMED, rounds=options.rounds) for rows in ROWS]
        for folder, model in models.items():
            found = translate_texts(model, sentences, beam=search == "beam")
            bleu = score_translations(found, references, corpus.split("-")[1])["bleu"]
            ratios = [relative(some[folder], some[options.folders[0]]) for some in times]
            layers, weights = cards[folder]["model"]["num_layers"], cards[folder]["weights"]
            layers = layers if isinstance(layers, list) else [layers] * 2
            row = f"| {layers[0]} + {layers[1]} | {weights:,} | {search} | {bleu:.2f} |"
            lines.append(f"{row} {ratios[0]:.2f} | {ratios[1]:.2f} |")
            print(lines[-1], flush=True)
    remark = (
        f"Plain graphs; BLEU of the {len(sentences):,} sentences of the test split. Time: {TIMED} "
        f"of them, relative to the first model, medians of {options.rounds} rounds."
    )
    title = f"Exported translators, {options.name}"
    write_result(f"translators-{options.name}", title, [remark, "\n".join(lines)], "")
