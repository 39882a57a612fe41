"""Training: optimizers, callbacks, losses, and the runs that combine them."""

from tf_transformer.training.callbacks import (
    BestWeights,
    LastWeights,
    MovingAverage,
    StopOnNaN,
    average_weights,
)
from tf_transformer.training.compilations import count_compilations
from tf_transformer.training.losses import (
    MaskedAccuracy,
    Perplexity,
    RDrop,
    SmoothedCrossentropy,
    TokenCrossentropy,
    score_translations,
)
from tf_transformer.training.optimizers import (
    FusedAdam,
    GlobalLossScale,
    InverseSquareRootSchedule,
    LayerwiseAdamW,
    WarmUpLinearDecay,
    accumulate_gradients,
)
from tf_transformer.training.resume_checkpoint import ResumeCheckpoint, resumable_fit
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
from tf_transformer.training.runs.run import Run, TrainingRun
from tf_transformer.training.runs.text_runs import LanguageModelRun, PretrainingRun

__all__ = [
    "LANGUAGE_MODEL_PRESETS",
    "PRESETS",
    "PRETRAINING_PRESETS",
    "BestWeights",
    "FineTuning",
    "FusedAdam",
    "GlobalLossScale",
    "InverseSquareRootSchedule",
    "LanguageModelPreset",
    "LanguageModelRun",
    "LastWeights",
    "LayerwiseAdamW",
    "MaskedAccuracy",
    "MovingAverage",
    "Perplexity",
    "Preset",
    "PretrainingPreset",
    "PretrainingRun",
    "RDrop",
    "ResumeCheckpoint",
    "Run",
    "SmoothedCrossentropy",
    "StopOnNaN",
    "TokenCrossentropy",
    "TrainingRun",
    "WarmUpLinearDecay",
    "accumulate_gradients",
    "average_weights",
    "count_compilations",
    "fine_tune",
    "get_preset",
    "hard_negatives",
    "resumable_fit",
    "retrieval_scores",
    "score_translations",
    "text_batches",
    "train_pairs",
]
