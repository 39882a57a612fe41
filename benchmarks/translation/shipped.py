"""Train the English-Chinese model of saved_models/: `python -m benchmarks shipped FOLDER`.

1. Teachers, which differ in the seed, learn the training split of the English-Chinese corpus and
   the pairs of `--pairs`: TSV files with English in the first and Chinese in the second column.
2. Their ensemble translates the English sentences of these pairs, and further ones: `--english`
   names files with an English sentence in the first column, such as the pairs of English with
   other languages from manythings.org/anki, of which it takes a sample. Of the n-best list of a
   sentence with references, the translation closest to one of them is kept; of the others, those
   that the ensemble finds likely.
3. A smaller student learns the pairs, each twice, and these translations; it is scored on the test
   split, for the first time, and exported to FOLDER/saved_model, with float16 in its files.

Sentences of the validation and test splits, on either side, are left out of all further data.

Each training takes one core, two teachers at a time; two processes translate. Resumable: the
same command continues; other options or other files need another FOLDER.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import random
import shlex
from pathlib import Path

from benchmarks.translation.multi30k_run import ONE_CORE

CORPUS = "en-zh"
# Of the teachers' beam search. A higher length penalty takes longer and gains 0.4 BLEU at most.
BEAM, LENGTH_PENALTY = 8, 1.0
LOWEST_SCORE = -2.0  # of a translation without references; about half are below
ARCHITECTURE = {"residual": {"part": "PreNorm"}, "positions": {"part": "RotaryPositions"}}
# Changes of the small preset, those of NOTES.md (the included model), measured on held-out pairs.
SHARED = {
    "lengths": (6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 32, 48),
    "num_layers": 3,
    "learning_rate_scale": 0.7,
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
STUDENT = {
    **SHARED,
    "d_model": 256,
    "dff": 768,
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


def english(files, split, most):
    """The sentences to translate: those of the training split, and some others, none held out."""
    from tf_transformer.data import load_corpus, pairs_without

    further = [text for text, _ in load_corpus("en-fr")]
    for file in files:
        further += [line.split("\t")[0] for line in Path(file).read_text("utf-8").splitlines()]
    own = dict.fromkeys(source for source, _ in split.train)  # each one once
    held_out = split.validation + split.test
    further = [(text, text) for text in dict.fromkeys(further) if text not in own]
    further = [text for text, _ in pairs_without(further, held_out)]
    return [*own, *random.Random(1).sample(further, min(most, len(further)))]


def chosen(n_best, references):
    """The translation to learn: the closest one to a reference, or a likely one, or none ("")."""
    from sacrebleu import CHRF

    if references:
        chrf = CHRF()
        closeness = {text: chrf.sentence_score(text, references).score for text, _ in n_best}
        return max(closeness, key=closeness.get)
    text, score = n_best[0]
    return text if score >= LOWEST_SCORE else ""


def translated(teachers, sources, references, folder):
    """Pairs of the sources and of the chosen translations by the ensemble, with beam search."""
    os.environ.update(ONE_CORE)  # before TensorFlow is imported
    from tf_transformer import Ensemble, GraphBPE, Translator
    from tf_transformer.compression import distilled_pairs
    from tf_transformer.export import n_best_translations
    from tf_transformer.training import TrainingRun

    runs = [TrainingRun.open(teacher) for teacher in teachers]
    ensemble = Ensemble([run.best_model() for run in runs])
    tokenizer = GraphBPE.from_file(runs[0].tokenizer_path)
    decoding = {"beam_size": BEAM, "length_penalty": LENGTH_PENALTY, "n_best": BEAM}
    translator = Translator(ensemble, tokenizer, **decoding)

    def translate(texts):
        lists = n_best_translations(translator, texts)
        return [
            chosen(n_best, references.get(text)) for text, n_best in zip(texts, lists, strict=True)
        ]

    def progress(done):
        print(f"{folder.name}: {done:,} of {len(sources):,} sentences translated", flush=True)

    return distilled_pairs(translate, sources, folder, part_size=2000, progress=progress)


def main(parser, arguments):
    """Train the teachers, translate, train the student, export it."""
    parser.add_argument("folder", type=Path, help="for the trainings; the same one resumes")
    parser.add_argument("--pairs", nargs="*", default=[], metavar="TSV", help="more pairs")
    parser.add_argument("--english", nargs="*", default=[], metavar="FILE", help="more sentences")
    parser.add_argument("--credit", default="", help="for these files, in the model card")
    parser.add_argument("--most", type=int, default=60_000, help="of these sentences")
    parser.add_argument("--teachers", type=int, default=4, help="models of the ensemble")
    options = parser.parse_args(arguments)
    seeds = range(1, options.teachers + 1)
    teachers = [options.folder / f"teacher-{seed}" for seed in seeds]

    split = load_split(options.pairs)
    references = {}
    for source, target in split.train:
        references.setdefault(source, []).append(target)
    texts = english(options.english, split, options.most)
    halves = texts[::2], texts[1::2]
    folders = [options.folder / f"translated-{half}" for half in (1, 2)]
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, spawn, max_tasks_per_child=1) as pool:
        changes = [{**TEACHER, "seed": seed} for seed in seeds]
        list(pool.map(train, teachers, changes, [split] * len(seeds)))
        first, second = pool.map(translated, [teachers] * 2, halves, [references] * 2, folders)
        further = with_further(split, split.train + first + second)
        student = options.folder / "student", STUDENT, further
        pool.submit(train, *student).result()

    from tf_transformer.cli.exporting import export_runs

    run = new_run(*student)
    translations = len(run.split.train) - 2 * len(split.train)
    counts = {name: len(part) for name, part in vars(split).items()}
    facts = {
        "pairs": {**counts, "translated by teachers": translations},
        "credit": options.credit,
        "command": shlex.join(["python", "-m", "benchmarks", "shipped", *arguments]),
    }
    export_runs([run], options.folder / "saved_model", facts, "float16", n_best=5)
