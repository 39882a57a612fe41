"""Heads removed from the included translator: `python -m benchmarks translator_heads FOLDER`.

Removes more and more heads by each measure of importance (BLEU on the validation split: the curve),
then a quarter and half of them, and trains the smaller models. They learn the pairs of the corpus,
the included model's translations of their English sentences and of those of the English-French
corpus, and its predictions for all of them. Scores on the test split, sizes, and times of the
exported translators, measured in turn. FOLDER keeps the translations and the trainings; the same
call resumes. Writes results/PROCESSOR/translator_heads.md and .png.
"""

from pathlib import Path

from benchmarks.compression.smaller_models import curve_table, draw, head_curve, table
from benchmarks.harness.report import speeds_folder, write_result

BEAM = 4  # as the included model has it
SEEN = 256  # training pairs that measure importance
SMALLER = {"without a quarter of the heads": (0.25, 3), "without half": (0.5, 6)}  # share, epochs
RATE, WARM_UP = 5e-4, 0.1
SOFT_TARGETS, TEMPERATURE = 0.5, 2.0


def main(parser, arguments):
    """Translate, measure importance, remove and train, score, time."""
    parser.add_argument("folder", type=Path, help="for the translations and the trainings")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds")
    options = parser.parse_args(arguments)
    from tf_transformer import Translator
    from tf_transformer.compression import prune_gradually
    from tf_transformer.data import PairSource
    from tf_transformer.export import load_transformer, save_translator, shipped_model
    from tf_transformer.export.saving import calibration_batches
    from tf_transformer.export.translation.folder import read_description
    from tf_transformer.training import Preset, TrainingRun

    included = shipped_model("en-zh")
    description = read_description(included)
    model, tokenizer = load_transformer(included)
    preset = Preset(**description["preset"])
    run = TrainingRun(options.folder, PairSource(**description["source"]), preset)
    pairs = run.split.train + translations(run, model, tokenizer)
    run.compile(model, RATE)  # its loss measures importance
    seen = calibration_batches(tokenizer, run.split.train, SEEN)

    curve = head_curve(model, seen, lambda smaller: bleu(smaller, tokenizer, run.split.validation))
    draw(curve, "BLEU, validation split", speeds_folder() / "translator_heads.png")

    models = {"the included model": model}
    for name, (share, epochs) in SMALLER.items():

        def train(smaller, name=name, epochs=epochs):
            folder = run.folder / name.replace(" ", "-")
            imitate(smaller, model, run, tokenizer, pairs, folder, epochs)

        models[name] = prune_gradually(model, seen, train, heads=share)
    columns = {
        title: {
            name: f"{bleu(one, tokenizer, run.split.test, beam):.2f}"
            for name, one in models.items()
        }
        for title, beam in (("BLEU, greedy", False), (f"beam of {BEAM}", True))
    }

    def save(one, folder):
        save_translator(Translator(one, tokenizer, beam_size=BEAM), folder, description)

    texts = [source for source, _ in run.split.test]
    lines = table(models, columns, save, "translate", texts, options.rounds)
    epochs = " and ".join(str(epochs) for _, epochs in SMALLER.values())
    remark = (
        f"The included English-Chinese model, trained again for {epochs} epochs on {len(pairs):,} "
        f"pairs, of which {len(pairs) - len(run.split.train):,} are its own translations. "
        f"Importance: {SEEN} training pairs. Time: greedy, relative to the first line, medians of "
        f"{options.rounds} rounds."
    )
    parts = [remark, lines, "## Without training again", curve_table(curve)]
    parts.append("![BLEU by heads removed](translator_heads.png)")
    write_result("translator_heads", "The included translator with fewer heads", parts, "")


def translations(run, model, tokenizer):
    """The model's translations of the English sentences of both corpora, by beam search."""
    from tf_transformer import Translator
    from tf_transformer.compression import distilled_pairs
    from tf_transformer.data import load_corpus, pairs_without
    from tf_transformer.export import translate_texts

    sources = dict.fromkeys(source for source, _ in run.split.train + load_corpus("en-fr"))
    held_out = run.split.validation + run.split.test
    sources = [source for source, _ in pairs_without([(one, one) for one in sources], held_out)]
    translator = Translator(model, tokenizer, beam_size=BEAM)
    return distilled_pairs(
        lambda texts: translate_texts(translator, texts, beam=True),
        sources,
        run.folder / "translations",
        progress=lambda done: print(f"{done:,} of {len(sources):,} translated", flush=True),
    )


def imitate(smaller, model, run, tokenizer, pairs, folder, epochs):
    """Train a smaller model on pairs and on what the model predicts for them, resumably."""
    from tf_transformer.compression import Distiller
    from tf_transformer.training import MovingAverage, WarmUpLinearDecay, resumable_fit

    student = Distiller(smaller, model, temperature=TEMPERATURE, soft_targets=SOFT_TARGETS)
    batches = batches_of(pairs, run.preset, tokenizer)
    total = batches.steps_per_epoch * epochs
    run.compile(student, WarmUpLinearDecay(RATE, int(WARM_UP * total), total))
    validation = batches_of(run.split.validation, run.preset, tokenizer)
    resumable_fit(student, batches, validation, folder, epochs=epochs, average=MovingAverage())


def batches_of(pairs, preset, tokenizer):
    """The batches of a training run, with the tokenizer of an exported model."""
    from tf_transformer.data import BucketedBatches

    return BucketedBatches(
        *(tokenizer.encode_strings(list(side)).to_list() for side in zip(*pairs, strict=True)),
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=preset.lengths,
        tokens_per_batch=preset.tokens_per_batch,
        seed=preset.seed,
    )


def bleu(model, tokenizer, pairs, beam=False):
    """BLEU of a model's translations of pairs."""
    from tf_transformer import Translator
    from tf_transformer.data import group_references
    from tf_transformer.export import translate_texts
    from tf_transformer.training import score_translations

    texts, references = group_references(pairs)
    found = translate_texts(Translator(model, tokenizer, beam_size=BEAM), texts, beam=beam)
    return score_translations(found, references, "zh")["bleu"]
