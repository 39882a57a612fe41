"""Training on several machines: each process has the whole model and a share of every batch."""

from tf_transformer.training.distribution.start import start_distribution
from tf_transformer.training.distribution.worker_share import WorkerShare
from tf_transformer.training.distribution.workers import Workers, current_workers

__all__ = ["WorkerShare", "Workers", "current_workers", "start_distribution"]
