"""Search by meaning, trained and compressed: `python -m benchmarks retrieval MODEL`.

MODEL is a folder with all-MiniLM-L6-v2. English sentences of the embedded corpus with the same
Chinese translation are paraphrases. The first of each group is a query; all other English sentences
of the corpus are the documents. Trains on the groups of the training part, with and without hard
negatives, and scores on those of the validation and test parts, which share no sentence with it.
Then stores the vectors of the best model in every form of index. Writes
results/PROCESSOR/retrieval.md.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.report import write_result

DTYPES = ("float32", "float16", "int8", "pq", "hnsw")
TOP = 10
NEGATIVES = 2
TIMED = 200  # queries, one by one


def main(parser, arguments):
    """Train, score, store, search, write."""
    parser.add_argument("model", help="a folder with all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=1, help="of training")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    options = parser.parse_args(arguments)
    import keras

    from tf_transformer.bert import SentenceEncoder, read_tokenizer
    from tf_transformer.data import load_corpus, split_pairs
    from tf_transformer.export import TextEncoder, VectorIndex, embed_lines, write_index
    from tf_transformer.training import FineTuning, hard_negatives, retrieval_scores, train_pairs

    split = split_pairs(load_corpus("en-zh"))
    train = [(first, other) for first, *rest in paraphrases(split.train) for other in rest]
    groups = paraphrases(split.validation + split.test)
    queries = [group[0] for group in groups]
    corpus = dict.fromkeys(source for part in vars(split).values() for source, _ in part)
    documents = [text for text in corpus if text not in set(queries)]
    rows = {text: n for n, text in enumerate(documents)}
    own = [{rows[text] for text in group[1:]} for group in groups]
    tokenizer = read_tokenizer(options.model)
    settings = FineTuning(epochs=options.epochs, batch_size=64, learning_rate=2e-5, max_length=64)

    def new():
        keras.utils.set_random_seed(1)
        return SentenceEncoder.from_pretrained(options.model, unpad=True, normalize=True)

    def vectors(encoder, texts):
        exported = TextEncoder(encoder, tokenizer)
        return np.concatenate(list(embed_lines(exported.encode, texts)))

    def scores(encoder):
        return retrieval_scores(vectors(encoder, queries), vectors(encoder, documents), own)

    before, plain, hard = new(), new(), new()
    found = {"before training": scores(before)}
    train_pairs(plain, tokenizer, train, settings, verbose=2)
    found["in-batch negatives"] = scores(plain)
    others = list(dict.fromkeys(document for _, document in train))
    places = {text: n for n, text in enumerate(others)}
    right = {}
    for query, document in train:
        right.setdefault(query, set()).add(places[document])
    sides = [query for query, _ in train], others
    near = hard_negatives(
        *(vectors(before, side) for side in sides), [right[q] for q in sides[0]], NEGATIVES
    )
    wrong = [[others[n] for n in row] for row in near]
    train_pairs(hard, tokenizer, train, settings, negatives=wrong, verbose=2)
    found[f"and {NEGATIVES} hard negatives"] = scores(hard)
    encoders = zip(found.values(), (before, plain, hard), strict=True)
    _, best = max(encoders, key=lambda one: one[0]["mrr"])

    asked, stored = vectors(best, queries), vectors(best, documents)
    exact = np.argsort(-(asked @ stored.T), axis=1, kind="stable")[:, :TOP]
    lines = [
        "| index | MiB | of the 10 nearest | recall@1 | time for a query, relative |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        indexes, sizes = {}, {}
        for dtype in DTYPES:
            place = Path(folder, dtype)
            write_index(place, [stored], TextEncoder(best, tokenizer).encode, dtype=dtype)
            indexes[dtype] = VectorIndex(place)
            sizes[dtype] = sum(file.stat().st_size for file in place.iterdir()) / 2**20
        times = relative_times(indexes, asked[:TIMED], options.rounds)
        for dtype, index in indexes.items():
            _, near = index.search(asked, TOP)
            shared = np.mean([len(set(a) & set(b)) for a, b in zip(near, exact, strict=True)]) / TOP
            first = np.mean([row[0] in right for row, right in zip(near, own, strict=True)])
            cells = f"{sizes[dtype]:.1f} | {shared:.1%} | {first:.1%} | {times[dtype]:.2f}"
            lines.append(f"| {dtype} | {cells} |")
    names = list(next(iter(found.values())))
    table = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for name, values in found.items():
        table.append(f"| {name} | " + " | ".join(f"{values[n]:.3f}" for n in names) + " |")
    remark = (
        f"{len(train):,} pairs to train on, {len(queries)} queries among {len(documents):,} "
        f"sentences; batches of 64, {options.epochs} times over the pairs, seed 1."
    )
    parts = [remark, "\n".join(table), "## Stored vectors", "\n".join(lines)]
    write_result("retrieval", "Search by meaning", parts, "")


def paraphrases(pairs):
    """Return groups of English sentences with the same Chinese translation."""
    groups = {}
    for english, chinese in pairs:
        groups.setdefault(chinese, {})[english] = None
    return [list(group) for group in groups.values() if len(group) > 1]


def relative_times(indexes, queries, rounds):
    """Search one by one, in turn: {name: median time relative to the first}."""
    seconds = {name: [] for name in indexes}
    for turn in range(rounds + 1):
        for name, index in indexes.items():
            start = time.perf_counter()
            for query in queries:
                index.search(query[np.newaxis], TOP)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    first = seconds[next(iter(indexes))]
    print(f"{1000 * statistics.median(first) / len(queries):.2f} ms", flush=True)
    return {
        name: statistics.median(a / b for a, b in zip(some, first, strict=True))
        for name, some in seconds.items()
    }
