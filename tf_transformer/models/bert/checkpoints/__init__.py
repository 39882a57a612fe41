"""Checkpoints of elsewhere: reading and writing them, strictly."""
