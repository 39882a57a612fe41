"""The three subword models in the translator: `python -m benchmarks subwords FOLDER`.

Trains the small preset on the English-Chinese corpus with each model and two vocabulary sizes, with
`tf-transformer train`, and scores each on the whole test split. The trainings go into FOLDER; one
that is already there is not repeated. Each takes about six minutes on two cores. Writes
results/scores/subwords.md.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.report import SCORES, write_result

SIZES = (4000, 8000)
SUBWORDS = ("bpe", "wordpiece", "unigram")
REMARK = """\
Tokens per sentence: means over the test split, without start and end. Unknown: tokens of the test
split for characters that training has not seen. WordPiece and Unigram use `metaspace_pipeline()`,
BPE uses bytes. One training each; three seeds of one setting differ by up to 0.8 BLEU
([quality](quality.md)).
"""


def main(parser, arguments):
    """Train what is missing, write the table."""
    parser.add_argument("folder", type=Path, help="where the trainings go")
    options = parser.parse_args(arguments)
    lines = [
        "| model | vocabulary | weights | tokens, English | Chinese | unknown | BLEU | chrF |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size, subword in itertools.product(SIZES, SUBWORDS):
        folder = options.folder / f"{subword}-{size}"
        if not (folder / "saved_model").is_dir():
            settings = ["--subword", subword, "--vocab-size", str(size), "--output", str(folder)]
            command = ["from tf_transformer.cli import main; import sys; sys.exit(main())", "train"]
            subprocess.run([sys.executable, "-c", *command, *settings], check=True)
        lines.append(row(subword, folder))
        print(lines[-1], flush=True)
    setting = "Each model was trained once with `tf-transformer train`, in turn."
    parts = [REMARK, "\n".join(lines)]
    write_result("subwords", "Subword models in the translator", parts, setting, SCORES)


def row(subword, folder):
    """A line of the table."""
    from tf_transformer import Tokenizer
    from tf_transformer.training import TrainingRun

    description = json.loads((folder / "saved_model" / "translator.json").read_text("utf-8"))
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    sides = [
        tokenizer.encode(side) for side in zip(*TrainingRun.open(folder).split.test, strict=True)
    ]
    english, chinese = (sum(map(len, side)) / len(side) for side in sides)
    unknown = tokenizer.special_tokens.get("<unk>")
    count = sum(row.count(unknown) for side in sides for row in side)
    scores = description["scores"]
    return (
        f"| {subword} | {tokenizer.vocab_size:,} | {description['weights']:,} | {english:.2f} | "
        f"{chinese:.2f} | {count} | {scores['bleu']} | {scores['chrf']} |"
    )
