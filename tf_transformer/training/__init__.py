"""Training: schedule, loss, metric, checkpoints, and the recipe that joins them."""
