"""A classifier by a recipe, measured: `python -m benchmarks chain SET ARCHIVE MODEL FOLDER`.

SET, ARCHIVE and MODEL are those of `fine_tuning`. Runs `tf-transformer finetune` and `compress`:
half of the layers distilled, a quarter of the heads and half of the inner units removed, int8 for
TensorFlow and for LiteRT. FOLDER keeps what is done; the same call resumes. Writes
results/PROCESSOR/chain-SET.md and .png.
"""

import json
import shutil
from pathlib import Path

from benchmarks.compression.classifier import EPOCHS
from benchmarks.harness.report import speeds_folder, write_result

# Epochs of distillation, and of each round of pruning: the reviews are three times as many.
TRAININGS = {"trec-6": (8, 3), "zh-reviews": (4, 2)}


def main(parser, arguments):
    """Fine-tune, compress, copy the table and the plot."""
    parser.add_argument("set", choices=EPOCHS, help="of texts")
    parser.add_argument("archive", help="the file of the texts")
    parser.add_argument("model", help="a folder with a pretrained BERT")
    parser.add_argument("folder", type=Path, help="for what is made")
    options = parser.parse_args(arguments)
    from tf_transformer import cli
    from tf_transformer.compression.recipes import Recipe
    from tf_transformer.export import compress

    tuned = options.folder / "finetuned"
    data = {"set": options.set, "archive": options.archive}
    if not (tuned / "result.json").is_file():
        shutil.rmtree(tuned, ignore_errors=True)  # an interrupted training is not resumed
        words = ["finetune", "--model", options.model, "--output", str(tuned)]
        words += ["--data", options.set, "--archive", options.archive]
        if cli.main([*words, "--epochs", str(EPOCHS[options.set])]):
            raise SystemExit(1)
    config = json.loads((tuned / "model" / "config.json").read_text("utf-8"))
    steps = steps_for(options.set, config["num_hidden_layers"] // 2)
    recipe = Recipe.from_dict({"model": str(tuned), "data": data, "steps": steps})
    smaller = options.folder / "smaller"
    compress(recipe, smaller, verbose=2)
    name = f"chain-{options.set}"
    shutil.copyfile(smaller / "results.png", speeds_folder() / f"{name}.png")
    text = (smaller / "README.md").read_text("utf-8").replace("results.png", f"{name}.png")
    numbered = [f"{n}. {step}" for n, step in enumerate(recipe.steps, start=1)]
    parts = ["\n".join(numbered), text.split("\n", 1)[1].strip()]
    write_result(name, f"A classifier by a recipe, {options.set}", parts, "")


def steps_for(texts, layers):
    """The steps of the recipe for a set of texts."""
    distilling, pruning = TRAININGS[texts]
    return [
        {"step": "distil", "layers": layers, "epochs": distilling, "hidden_states": 1.0},
        {"step": "prune", "heads": 0.25, "units": 0.5, "rounds": 2, "epochs": pruning},
        {"step": "quantize"},
        {"step": "quantize", "runtime": "litert"},
    ]
