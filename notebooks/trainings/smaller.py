"""A small translator made smaller: heads and units removed, 8 bits, a student of fewer layers."""

import keras

from tf_transformer import Transformer
from tf_transformer.compression import (
    Distiller,
    head_importance,
    least_important,
    pruned,
    quantized,
    unit_importance,
)
from trainings.translator import batches, bleu, corpus, fit, trained

D_MODEL = 64


def cut(seed, *, pairs=None, **options):
    """BLEU of the whole model, in 8 bits, and without half of its heads and inner units.

    Args:
        seed: int.
        pairs: None for all, or how many to train on.
        options: see `trained`.
    """
    [model, _], whole = model_and_scores(seed, pairs=pairs, **options)
    tokenizer, train, validation = corpus(pairs=pairs)
    some = list(batches(tokenizer, train[:400]).epoch(0))
    half = {
        name: least_important(measure(model, some), 0.5)
        for name, measure in (("heads", head_importance), ("units", unit_importance))
    }
    smaller = pruned(model, **half)
    found = {
        "bleu": whole["bleu"],
        "int8": bleu(quantized(model, some), tokenizer, validation),
        "cut": bleu(smaller, tokenizer, validation),
        "weights": whole["weights"],
        "cut_weights": smaller.count_params(),
    }
    fit(smaller, batches(tokenizer, train), 2, D_MODEL)
    return {**found, "cut_and_trained": bleu(smaller, tokenizer, validation)}


def taught(seed, *, pairs=12_000, epochs=6):
    """BLEU of a teacher, and of a student of half its layers alone and taught.

    Args:
        seed: int.
        pairs: int, how many to train on.
        epochs: int.
    """
    [teacher, student], scores = model_and_scores(seed, pairs=pairs, epochs=epochs)
    alone = trained(seed, pairs=pairs, epochs=epochs, layers=1)
    tokenizer, train, validation = corpus(pairs=pairs)
    keras.utils.set_random_seed(seed)
    distiller = Distiller(student, teacher, soft_targets=0.7)
    fit(distiller, batches(tokenizer, train), epochs, D_MODEL)
    return {
        "teacher": scores["bleu"],
        "alone": alone["bleu"],
        "taught": bleu(student, tokenizer, validation),
        "weights": scores["weights"],
        "student_weights": student.count_params(),
    }


def model_and_scores(seed, **options):
    """A trained model with a new one of half its layers, and its scores."""
    models = []
    scores = trained(seed, change=models.append, **options)
    config = {**models[0].get_config(), "num_layers": 1}
    return [models[0], Transformer.from_config(config)], scores


VARIANTS = {"cut": cut, "taught": taught}
