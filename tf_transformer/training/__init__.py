"""Training: optimizers, callbacks, losses, and the runs that combine them."""

from tf_transformer.moved import keep_old_paths
from tf_transformer.training.callbacks import (
    BestWeights,
    LastWeights,
    MovingAverage,
    ResumeCheckpoint,
    average_weights,
)
from tf_transformer.training.compilations import count_compilations
from tf_transformer.training.losses import MaskedAccuracy, RDrop, SmoothedCrossentropy
from tf_transformer.training.optimizers import (
    FusedAdam,
    InverseSquareRootSchedule,
    LayerwiseAdamW,
    WarmUpLinearDecay,
)
from tf_transformer.training.runs import (
    LANGUAGE_MODEL_PRESETS,
    PRESETS,
    PRETRAINING_PRESETS,
    FineTuning,
    LanguageModelPreset,
    LanguageModelRun,
    Preset,
    PretrainingPreset,
    PretrainingRun,
    TrainingRun,
    fine_tune,
    get_preset,
    resumable_fit,
    score_translations,
    text_batches,
)

__all__ = [
    "LANGUAGE_MODEL_PRESETS",
    "PRESETS",
    "PRETRAINING_PRESETS",
    "BestWeights",
    "FineTuning",
    "FusedAdam",
    "InverseSquareRootSchedule",
    "LanguageModelPreset",
    "LanguageModelRun",
    "LastWeights",
    "LayerwiseAdamW",
    "MaskedAccuracy",
    "MovingAverage",
    "Preset",
    "PretrainingPreset",
    "PretrainingRun",
    "RDrop",
    "ResumeCheckpoint",
    "SmoothedCrossentropy",
    "TrainingRun",
    "WarmUpLinearDecay",
    "average_weights",
    "count_compilations",
    "fine_tune",
    "get_preset",
    "resumable_fit",
    "score_translations",
    "text_batches",
]

keep_old_paths(
    __name__,
    {
        "base_preset": "runs.base_preset",
        "best_weights": "callbacks.best_weights",
        "fine_tuning": "runs.fine_tuning",
        "fused_adam": "optimizers.fused_adam",
        "interrupt": "callbacks.interrupt",
        "last_weights": "callbacks.last_weights",
        "layerwise_adamw": "optimizers.layerwise_adamw",
        "linear_schedule": "optimizers.warm_up_linear_decay",
        "loss": "losses.smoothed_crossentropy",
        "metrics": "losses.masked_accuracy",
        "moving_average": "callbacks.moving_average",
        "presets": "runs.presets",
        "pretraining_presets": "runs.pretraining_presets",
        "pretraining_run": "runs.pretraining_run",
        "r_drop": "losses.r_drop",
        "resumable_fit": "runs.resumable_fit",
        "resume_checkpoint": "callbacks.resume_checkpoint",
        "run": "runs.training_run",
        "run_settings": "runs.run_settings",
        "schedule": "optimizers.inverse_square_root_schedule",
        "scores": "runs.scores",
    },
)
