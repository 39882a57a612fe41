"""Folders of small published decoders with tokenizers."""

import json
import shutil
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "vectors" / "text_generation"


def generator_folder(path, name, **settings):
    """Copy a model of tests/vectors/text_generation, with these settings for generation."""
    shutil.copytree(FOLDER / name, path)
    content = {"bos_token_id": 0, "eos_token_id": 1, **settings}
    (path / "generation_config.json").write_text(json.dumps(content))
    return path
