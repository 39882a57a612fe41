"""A fine-tuned classifier by LiteRT and its peers: `python -m benchmarks litert SET ARCHIVE MODEL`.

SET, ARCHIVE and MODEL are those of `fine_tuning`. Fine-tunes the model, or takes that of `--tuned`,
writes it for LiteRT in every dtype, and compares accuracy on the test part, size, and time for one
text with this library's graphs, ONNX Runtime and torch, one after the other in each round. All get
the same ids. Writes results/PROCESSOR/litert-SET.md.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.compression.classifier import (
    fine_tuned_classifier,
    set_arguments,
    set_tuned_argument,
)
from benchmarks.harness.arena import contest
from benchmarks.harness.report import write_result

PEERS = [
    ("tf_transformer", "compression.peers.classifier_ours"),
    ("tf_transformer", "compression.peers.classifier_litert"),
    ("huggingface", "compression.peers.classifier_torch"),
]
DTYPES = ("float32", "float16", "int8", "full int8")
SINGLE = 64  # texts that are timed one by one
SEEN = 256  # training texts that calibrate


def main(parser, arguments):
    """Train, write, score, time."""
    set_arguments(parser)
    set_tuned_argument(parser)
    options = parser.parse_args(arguments)
    from tf_transformer.export import write_litert
    from tf_transformer.models.bert.text_inputs import read_tokenizer_file
    from tf_transformer.tokenizers import Tokenizer

    model, _, data, settings = fine_tuned_classifier(options, tuned=options.tuned)
    file = read_tokenizer_file(options.model)
    seen = [text for text, _ in data.train[:SEEN]]
    remarks, difference = [], {}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model.save_pretrained(folder / "model", tokenizer_from=options.model)
        for dtype in DTYPES:
            try:
                report = write_litert(
                    model, file, folder / dtype, weights_dtype=dtype, examples=seen
                )
                difference[f"LiteRT, {dtype}"] = report["difference"]
            except ValueError as error:
                remarks.append(f"LiteRT, {dtype}: {error}")
        rows = encoded(Tokenizer(file), [text for text, _ in data.test], settings.max_length)
        arrays = {f"ids{n}": np.array([row], np.int32) for n, row in enumerate(rows[:SINGLE])}
        seen = encoded(Tokenizer(file), seen, settings.max_length)
        scored = padded_rows(rows, "test") | padded_rows(seen, "seen")
        scored["labels"] = np.array([label for _, label in data.test], np.int32)
        scores = contest(PEERS, {"folder": str(folder), "score": True}, scored, 1, None, repeats=1)
        case = {"folder": str(folder), "score": False}
        times = contest(PEERS, case, {**arrays, **padded_rows(seen, "seen")}, options.rounds, None)
    lines = [
        "| | accuracy | MiB | time for a text | relative | difference |",
        "|---|---|---|---|---|---|",
    ]
    first = times["ONNX Runtime"]["seconds"]
    for name, result in times.items():
        accuracy, size = scores[name]["values"][0]
        seconds = result["seconds"]
        ratio = statistics.median(a / b for a, b in zip(seconds, first, strict=True))
        off = f"{difference[name]:.2g}" if name in difference else ""
        lines.append(
            f"| {name} | {accuracy:.1%} | {size:.1f} | "
            f"{1000 * statistics.median(seconds) / SINGLE:.2f} ms | {ratio:.2f} | {off} |"
        )
    remark = (
        f"`{Path(options.model).name}` fine-tuned on {len(data.train):,} texts, {len(data.test):,} "
        f"for the test, seed {settings.seed}. {SINGLE} texts one by one, from ids to "
        f"probabilities; medians of {options.rounds} rounds, relative to ONNX Runtime. "
        f"Difference: the largest from the model, relative to the largest probability. {SEEN} "
        f"training texts calibrate static ranges."
    )
    write_result(
        f"litert-{options.set}",
        f"A classifier by LiteRT, {options.set}",
        [remark, *remarks, "\n".join(lines)],
        "",
    )


def encoded(tokenizer, texts, most):
    """Ids of texts with special tokens, at most `most`."""
    rows = [row[: most - 2] for row in tokenizer.encode(texts)]
    return [[tokenizer.start_id, *row, tokenizer.end_id] for row in rows]


def padded_rows(rows, name):
    """Rows of ids as arrays NAME_ids and NAME_mask, (N, T)."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    mask = np.zeros_like(ids)
    for n, row in enumerate(rows):
        ids[n, : len(row)], mask[n, : len(row)] = row, 1
    return {f"{name}_ids": ids, f"{name}_mask": mask}
