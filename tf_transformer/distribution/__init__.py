"""Training on several machines, each with the whole model and a share of every batch."""

from tf_transformer.distribution.worker_share import WorkerShare, own_rows
from tf_transformer.distribution.workers import (
    Workers,
    current_workers,
    lost_workers_named,
    start_distribution,
    together,
)

__all__ = [
    "WorkerShare",
    "Workers",
    "current_workers",
    "lost_workers_named",
    "own_rows",
    "start_distribution",
    "together",
]
