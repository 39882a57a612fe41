"""Whole runs: translators, language models, BERT pretraining, fine-tuning, and their presets."""

from tf_transformer.training.runs.bleu import score_translations
from tf_transformer.training.runs.fine_tuning import (
    FineTuning,
    fine_tune,
    hard_negatives,
    retrieval_scores,
    text_batches,
    train_pairs,
)
from tf_transformer.training.runs.presets import (
    LANGUAGE_MODEL_PRESETS,
    PRESETS,
    PRETRAINING_PRESETS,
    LanguageModelPreset,
    Preset,
    PretrainingPreset,
    get_preset,
)
from tf_transformer.training.runs.resumable_fit import resumable_fit
from tf_transformer.training.runs.run import Run, TrainingRun
from tf_transformer.training.runs.text_runs import LanguageModelRun, PretrainingRun

__all__ = [
    "LANGUAGE_MODEL_PRESETS",
    "PRESETS",
    "PRETRAINING_PRESETS",
    "FineTuning",
    "LanguageModelPreset",
    "LanguageModelRun",
    "Preset",
    "PretrainingPreset",
    "PretrainingRun",
    "Run",
    "TrainingRun",
    "fine_tune",
    "get_preset",
    "hard_negatives",
    "resumable_fit",
    "retrieval_scores",
    "score_translations",
    "text_batches",
    "train_pairs",
]
