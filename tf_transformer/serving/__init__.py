"""An HTTP server for exported models: JSON in, JSON out."""

from tf_transformer.serving.app import Limits, Task, create_app
from tf_transformer.serving.batcher import Batcher, Overloaded

__all__ = ["Batcher", "Limits", "Overloaded", "Task", "create_app"]
