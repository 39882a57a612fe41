"""Whole runs: translators, language models, BERT pretraining, fine-tuning, and their presets."""

from tf_transformer.training.runs.bleu import score_translations
from tf_transformer.training.runs.fine_tuning import FineTuning, fine_tune, text_batches
from tf_transformer.training.runs.language_model_run import LanguageModelRun
from tf_transformer.training.runs.pair_training import (
    hard_negatives,
    retrieval_scores,
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
from tf_transformer.training.runs.pretraining_run import PretrainingRun
from tf_transformer.training.runs.resumable_fit import resumable_fit
from tf_transformer.training.runs.run import Run
from tf_transformer.training.runs.training_run import TrainingRun

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
