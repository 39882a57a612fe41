"""The included translator in int8, next to CTranslate2: `python -m benchmarks int8_translator`.

Translates the test split greedily, with the same weights in all engines, in batches of 64 and one
by one, with every engine in turn. Activations are calibrated on training pairs. Writes
results/PROCESSOR/int8_translator.md and .json. Needs `pip install -e ".[bench,train]"`.
"""

import numpy as np

from benchmarks.decoding.translate import contest, faster, latencies, model_arrays
from benchmarks.harness.report import write_json, write_result

PEERS = [
    ("CTranslate2", "decoding.peers.ctranslate2_engine"),
    ("tf_transformer", "decoding.peers.ours_int8"),
    ("tf_transformer", "decoding.peers.ours_int8_workers"),
]
CALIBRATION = 512  # training pairs
OWN, ENGINE = "tf_transformer", "CTranslate2"


def main(parser, arguments):
    """Run both cases."""
    parser.add_argument("--rounds", type=int, default=5, help="timed, after one to warm up")
    options = parser.parse_args(arguments)
    from tf_transformer.data import group_references, load_corpus, split_pairs
    from tf_transformer.export import load_transformer, shipped_model

    model, tokenizer = load_transformer(shipped_model("en-zh"))
    split = split_pairs(load_corpus("en-zh"))
    sentences, references = group_references(split.test)
    test = zip(tokenizer.encode_strings(sentences).to_list(), references, strict=True)
    sources, references = zip(*sorted(test, key=lambda row: -len(row[0])), strict=True)
    sizes, arrays = model_arrays(model, tokenizer, sources)
    arrays |= calibration(tokenizer, split.train[:CALIBRATION])
    engine = {"": "float32", ", int8": "int8"}
    everything, parts = {}, []
    for title, batch in (("Batches of 64", 64), ("One by one", 1)):
        case = {"beam": 1, "batch": batch, "model": sizes, "engine": engine}
        results, found = contest(PEERS, case, arrays, options.rounds)
        for name, result in results.items():
            result["bleu"] = bleu(tokenizer, found[name], references)
        everything[title] = results
        show = latencies if batch == 1 else throughput
        parts.append(f"## {title}\n\n{show(results, len(sources))}")
        print(parts[-1], flush=True)
    write_json("int8_translator", everything)
    remark = (
        f"The included English-Chinese model ({model.count_params():,} weights), greedy, the "
        f"{len(sources):,} sentences of the test split sorted by length, all cores; BLEU with "
        f"all references. int8: static ranges from {CALIBRATION} training pairs; dynamic: the "
        f"range of each token. Ratios are medians over the rounds, with their range."
    )
    write_result("int8_translator", "The included translator in int8", [remark, *parts])


def calibration(tokenizer, pairs):
    """Ids of training pairs: `seen_source` and `seen_target`, (B, T)."""
    sides = zip(*pairs, strict=True)
    sides = [tokenizer.encode_strings(list(side)).to_list() for side in sides]
    rows = {
        "seen_source": [[*row, tokenizer.end_id] for row in sides[0]],
        "seen_target": [[tokenizer.start_id, *row] for row in sides[1]],
    }
    widths = {name: max(map(len, side)) for name, side in rows.items()}
    return {
        name: np.array([row + [0] * (widths[name] - len(row)) for row in side], np.int32)
        for name, side in rows.items()
    }


def bleu(tokenizer, ids, references):
    """BLEU of translations, lists of ids."""
    import tensorflow as tf

    from tf_transformer.training import score_translations

    texts = tokenizer.decode_ids(tf.ragged.constant(ids, tf.int32).to_tensor()).numpy()
    texts = [text.decode() for text in texts]
    return score_translations(texts, references, "zh")["bleu"]


def throughput(results, count):
    """Markdown: sentences a second, next to float32 and to CTranslate2 in int8."""
    best = max(
        (name for name in results if name.startswith(f"{ENGINE}, int8")),
        key=lambda name: -min(map(sum, results[name]["rounds"])),
    )
    lines = [
        f"| | sentences a second | speed / {OWN} | speed / {best} | BLEU |",
        "|---|---|---|---|---|",
    ]
    for name, result in results.items():
        speed = count / np.median([sum(one) for one in result["rounds"]])
        lines.append(
            f"| {name} | {speed:,.0f} | {faster(results, name, OWN)} | "
            f"{faster(results, name, best)} | {result['bleu']:.2f} |"
        )
    return "\n".join(lines)
