"""An HTTP server for exported models: JSON in, JSON out."""

from tf_transformer.serving.app import create_app
from tf_transformer.serving.batcher import Batcher
from tf_transformer.serving.limits import Limits
from tf_transformer.serving.overloaded import Overloaded
from tf_transformer.serving.task import Task

__all__ = ["Batcher", "Limits", "Overloaded", "Task", "create_app"]
