"""Module paths of earlier versions still work and refer to the current modules."""

import importlib
import subprocess
import sys

import pytest

# Every module path that has moved, and a name in that module.
MOVED = """
functional.attention scaled_dot_product_attention
functional.attention_plan choose_plan
functional.blocks Blocks
functional.blockwise_attention blockwise_attention
functional.cached_attention cached_attention
functional.check_mask check_mask
functional.layer_norm layer_norm
functional.masks create_masks
functional.product product
functional.rows Rows
functional.rowwise_attention rowwise_attention
functional.whole_attention whole_attention
layers.feed_forward point_wise_feed_forward_network
layers.layer_norm LayerNorm
training.base_preset BasePreset
training.best_weights BestWeights
training.fine_tuning fine_tune
training.fused_adam FusedAdam
training.interrupt InterruptBetweenBatches
training.last_weights LastWeights
training.layerwise_adamw LayerwiseAdamW
training.linear_schedule WarmUpLinearDecay
training.loss SmoothedCrossentropy
training.metrics MaskedAccuracy
training.moving_average MovingAverage
training.presets get_preset
training.pretraining_presets PretrainingPreset
training.pretraining_run PretrainingRun
training.r_drop RDrop
training.resumable_fit resumable_fit
training.resume_checkpoint ResumeCheckpoint
training.run TrainingRun
training.run_settings read_settings
training.schedule InverseSquareRootSchedule
training.scores score_translations
export.embedding embed_lines
export.id_translator IdTranslator
export.in_parts in_parts
export.saved_translator load_translator
export.shipped_models shipped_model
export.text_classifier TextClassifier
export.text_encoder TextEncoder
export.translate_file translate_file
export.translate_texts translate_texts
export.translator Translator
"""
ROWS = [row.split() for row in MOVED.split("\n") if row]


@pytest.mark.parametrize(("module", "name"), ROWS, ids=[module for module, _ in ROWS])
def test_an_old_path_is_the_new_module(module, name):
    found = getattr(importlib.import_module(f"tf_transformer.{module}"), name)
    today = importlib.import_module(found.__module__)
    assert getattr(today, name) is found


def test_every_moved_path_is_tested():
    from tf_transformer import export, functional, layers, training

    listed = {f"tf_transformer.{module}" for module, _ in ROWS} - {
        "tf_transformer.functional.attention"  # now a folder of the same name
    }
    moved = {
        name
        for package in (functional, layers, training, export)
        for name, module in sys.modules.items()
        if name.startswith(f"{package.__name__}.") and module.__name__ != name
    }
    assert moved == listed


def test_old_paths_as_the_first_import_and_names_that_are_functions_stay_functions():
    program = (
        "from tf_transformer.training.loss import SmoothedCrossentropy\n"
        "import tf_transformer.functional.check_mask, tf_transformer.functional.attention_plan\n"
        "import tf_transformer.export.translator\n"
        "assert tf_transformer.export.translator.Translator is tf_transformer.Translator\n"
        "assert callable(tf_transformer.check_mask) and callable(tf_transformer.attention_plan)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
