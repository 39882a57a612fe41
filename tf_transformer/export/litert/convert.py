"""Conversion of traced functions to a LiteRT file."""

import contextlib
import logging
import re
import tempfile
import warnings

import tensorflow as tf

from tf_transformer.errors import ArgumentError

WEIGHTS_DTYPES = ("float32", "float16", "int8", "full int8")


def convert(functions, weights, weights_dtype="float32", examples=None):
    """Convert functions to one LiteRT file with shared weights."""
    module = tf.Module()  # of a Keras model the converter would make NaN
    module.weights = weights
    with tempfile.TemporaryDirectory() as folder, _quiet():
        tf.saved_model.save(module, folder, signatures=functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, [*functions])
        if weights_dtype != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if weights_dtype == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if weights_dtype == "full int8":
            converter.representative_dataset = lambda: iter(examples)
        try:
            return converter.convert()
        except Exception as error:  # the converter raises nothing narrower
            lacking = re.search("TF Select ops: (.*)", str(error))
            reason = f"it has no operation {lacking[1]}" if lacking else error
            raise ArgumentError("model", "one that LiteRT can compute", reason) from error


@contextlib.contextmanager
def _quiet():
    """Without a warning for each gradient of our own, which the file does not need."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # The converter uses an interpreter that its own package calls outdated.
            warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
            yield
    finally:
        logger.setLevel(level)
