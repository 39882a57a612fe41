"""The cores that decode side by side."""

import os

import tensorflow as tf


def cores():
    """Count the cores of a machine that computes on its CPU."""
    return 1 if tf.config.list_physical_devices("GPU") else os.cpu_count() or 1
