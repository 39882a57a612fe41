"""Models in LiteRT's format, run without TensorFlow: `pip install -e ".[lite]"`.

`export.write_litert` writes them. These classes need numpy, ai-edge-litert and tokenizers.
"""

from tf_transformer.lazy import lazy_names

_EXPORTS = {
    "LiteClassifier": "lite_models",
    "LiteModel": "lite_models",
    "LiteTextEncoder": "lite_models",
    "LiteTranslator": "lite_models",
    "load": "lite_models",
}

__all__ = sorted(_EXPORTS)
__getattr__, __dir__ = lazy_names(__name__, _EXPORTS)
