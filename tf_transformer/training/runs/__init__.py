"""Whole runs: translators, language models, BERT pretraining, fine-tuning, and their presets."""
