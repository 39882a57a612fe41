"""Train the English-Chinese model of saved_models/: `python -m benchmarks shipped FOLDER`.

1. Teachers, which differ in the seed, learn the training split of the English-Chinese corpus and
   the pairs of `--pairs`: TSV files with English in the first and Chinese in the second column.
2. Their ensemble translates the English sentences of these pairs, and further ones: `--english`
   names files with an English sentence in the first column, such as the pairs of English with
   other languages from manythings.org/anki, of which it takes a sample.
3. A student learns the same pairs and these translations, then the pairs alone, the short ones more
   often: the ensemble translates idioms by their words ("Hello!" was "好！"). It is scored on the
   test split and exported to FOLDER/saved_model, with float16 in its files.

Sentences of the validation and test splits, on either side, are left out of all further data.

The length penalty of the ensemble's beam search is chosen on the validation split. That of the
student is small, since with a large one no open beam can be given up before the longest length.

Each training takes one core, two teachers at a time; two processes translate. Resumable: the
same command continues; other options or other files need another FOLDER.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import random
import shlex
import shutil
from pathlib import Path

from benchmarks.translation.multi30k_run import ONE_CORE

CORPUS = "en-zh"
BEAM = 5
PENALTIES = (0.6, 1.0, 1.25, 1.5, 1.75)
ARCHITECTURE = {"residual": {"part": "PreNorm"}, "positions": {"part": "RotaryPositions"}}
# Changes of the small preset, measured on held-out pairs; see NOTES.md (the included model).
SHARED = {
    "lengths": (6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 32, 48),
    "num_layers": 3,
    "learning_rate_scale": 0.7,
    "short_repeats": 1,
    "architecture": ARCHITECTURE,
    "precision": "mixed_bfloat16",
}
TEACHER = {
    **SHARED,
    "d_model": 256,
    "dff": 1024,
    "rate": 0.25,
    "r_drop": 3.0,
    "beta_2": 0.998,
    "epochs": 16,
}
# Of the student on the pairs alone: epochs; the rate, which falls to a tenth; how often it sees a
# pair of at most four words, since an idiom cannot be learned from other sentences; what the result
# counts in the mean with the weights before (Wortsman et al. 2022, "Robust fine-tuning").
TUNING = {"epochs": 4, "rate": 6e-4, "words": 4, "times": 4, "share": 0.75}
STUDENT = {
    **SHARED,
    "d_model": 256,
    "dff": 1280,
    "beta_2": 0.999,
    "average_momentum": 0.999,
    "epochs": 7,
}


def load_split(files):
    """The splits of the corpus; the pairs of further files are added to the training split."""
    from tf_transformer.data import PairSource, load_corpus, split_pairs

    split = split_pairs(load_corpus(CORPUS))
    return with_further(split, PairSource(tsv=tuple(files)).load()) if files else split


def with_further(split, pairs):
    """The splits with further pairs to train on, without those that share a held-out sentence."""
    from tf_transformer.data import pairs_without

    further = pairs_without(pairs, split.validation + split.test)
    return dataclasses.replace(split, train=split.train + further)


def new_run(folder, changes, split):
    """A training run of these splits."""
    from tf_transformer.data import PairSource
    from tf_transformer.training import TrainingRun, get_preset

    preset = get_preset("small").with_changes(changes)
    run = TrainingRun(folder, PairSource(corpus=CORPUS), preset)
    run.split = split
    return run


def train(folder, changes, split):
    """Train a model, or finish its training, on one core: a second one gains little."""
    os.environ.update(ONE_CORE)  # before TensorFlow is imported
    new_run(folder, changes, split).train()


def tuning_pairs(pairs):
    """The pairs of the last epochs: all, and the short ones some more times."""
    short = [pair for pair in pairs if len(pair[0].split()) <= TUNING["words"]]
    return pairs + short * (TUNING["times"] - 1)


def fine_tune(student, changes, folder, split):
    """Train a student on the pairs of a split alone; the mean of both is a copy of its run."""
    os.environ.update(ONE_CORE)  # before TensorFlow is imported
    import keras

    from tf_transformer import Tokenizer
    from tf_transformer.data import BucketedBatches
    from tf_transformer.data.files import replacing
    from tf_transformer.training import FusedAdam, SmoothedCrossentropy

    if folder.is_dir():
        return
    run = new_run(student, changes, split)
    keras.utils.set_random_seed(run.preset.seed)
    keras.config.set_dtype_policy(run.preset.precision)
    model, tokenizer = run.best_model(), Tokenizer.load(run.tokenizer_path)
    before = model.get_weights()
    batches = BucketedBatches(
        *(tokenizer.encode(list(side)) for side in zip(*tuning_pairs(split.train), strict=True)),
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=run.preset.lengths,
        tokens_per_batch=run.preset.tokens_per_batch,
        seed=run.preset.seed,
    )
    steps, epochs, rate = batches.steps_per_epoch, TUNING["epochs"], TUNING["rate"]
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, epochs * steps, rate / 10)
    adam = FusedAdam(schedule, beta_1=0.9, beta_2=run.preset.beta_2, epsilon=1e-9)
    model.compile(adam, loss=SmoothedCrossentropy(0.0), jit_compile=False)
    model.fit(batches.dataset(), steps_per_epoch=steps, epochs=epochs, shuffle=False, verbose=2)
    share = TUNING["share"]
    pairs = zip(before, model.get_weights(), strict=True)
    model.set_weights([(1 - share) * old + share * new for old, new in pairs])
    with replacing(folder) as beside:
        shutil.copytree(student, beside)
        model.save_weights(beside / "best.weights.h5")


def english(files, split, most):
    """Return the sentences to translate: the training split and some others, none held out."""
    from tf_transformer.data import load_corpus, pairs_without

    further = [text for text, _ in load_corpus("en-fr")]
    for file in files:
        further += [line.split("\t")[0] for line in Path(file).read_text("utf-8").splitlines()]
    own = dict.fromkeys(source for source, _ in split.train)  # each one once
    held_out = split.validation + split.test
    further = [(text, text) for text in dict.fromkeys(further) if text not in own]
    further = [text for text, _ in pairs_without(further, held_out)]
    return [*own, *random.Random(1).sample(further, min(most, len(further)))]


def best_penalty(model, run):
    """The length penalty with the highest BLEU on the validation split."""
    from tf_transformer import GraphBPE, Translator
    from tf_transformer.data import group_references
    from tf_transformer.export import translate_texts
    from tf_transformer.training import score_translations

    sources, references = group_references(run.split.validation)
    tokenizer = GraphBPE.from_file(run.tokenizer_path)
    scores = {}
    for penalty in PENALTIES:
        translator = Translator(model, tokenizer, beam_size=BEAM, length_penalty=penalty)
        texts = translate_texts(translator, sources, beam=True)
        scores[penalty] = score_translations(texts, references, run.source.target_language)["bleu"]
    print(f"BLEU on the validation split by length penalty: {scores}", flush=True)
    return max(scores, key=scores.get)


def translated(teachers, sources, folder):
    """Pairs of the sources and of their translations by the ensemble, with beam search."""
    os.environ.update(ONE_CORE)  # before TensorFlow is imported
    from tf_transformer import Ensemble, GraphBPE, Translator
    from tf_transformer.compression import distilled_pairs
    from tf_transformer.export import translate_texts
    from tf_transformer.training import TrainingRun

    runs = [TrainingRun.open(teacher) for teacher in teachers]
    ensemble = Ensemble([run.best_model() for run in runs])
    penalty = best_penalty(ensemble, runs[0])
    tokenizer = GraphBPE.from_file(runs[0].tokenizer_path)
    translator = Translator(ensemble, tokenizer, beam_size=BEAM, length_penalty=penalty)

    def progress(done):
        print(f"{folder.name}: {done:,} of {len(sources):,} sentences translated", flush=True)

    return distilled_pairs(
        lambda texts: translate_texts(translator, texts, beam=True),
        sources,
        folder,
        part_size=2000,
        progress=progress,
    )


def main(parser, arguments):
    """Train the teachers, translate, train the student, export it."""
    parser.add_argument("folder", type=Path, help="for the trainings; the same one resumes")
    parser.add_argument("--pairs", nargs="*", default=[], metavar="TSV", help="more pairs")
    parser.add_argument("--english", nargs="*", default=[], metavar="FILE", help="more sentences")
    parser.add_argument("--credit", default="", help="for these files, in the model card")
    parser.add_argument("--most", type=int, default=60_000, help="of these sentences")
    parser.add_argument("--teachers", type=int, default=4, help="models of the ensemble")
    parser.add_argument("--layers", nargs=2, type=int, help="of the student: encoder, decoder")
    options = parser.parse_args(arguments)
    seeds = range(1, options.teachers + 1)
    teachers = [options.folder / f"teacher-{seed}" for seed in seeds]

    split = load_split(options.pairs)
    texts = english(options.english, split, options.most)
    halves = texts[::2], texts[1::2]
    folders = [options.folder / f"translated-{half}" for half in (1, 2)]
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, spawn, max_tasks_per_child=1) as pool:
        changes = [{**TEACHER, "seed": seed} for seed in seeds]
        list(pool.map(train, teachers, changes, [split] * len(seeds)))
        first, second = pool.map(translated, [teachers] * 2, halves, folders)
        changes = STUDENT | ({"num_layers": options.layers} if options.layers else {})
        student = options.folder / "student", changes
        pool.submit(train, *student, with_further(split, first + second)).result()
        tuned = options.folder / "tuned"
        pool.submit(fine_tune, *student, tuned, split).result()

    from tf_transformer.cli.exporting import export_runs

    run = new_run(tuned, changes, with_further(split, first + second))
    translations = len(run.split.train) - len(split.train)
    counts = {name: len(part) for name, part in vars(split).items()}
    facts = {
        "pairs": {**counts, "translated by teachers": translations},
        "credit": options.credit,
        "command": shlex.join(["python", "-m", "benchmarks", "shipped", *arguments]),
    }
    decoding = {"beam_size": 4, "n_best": 4}
    export_runs([run], options.folder / "saved_model", facts, "float16", **decoding)
