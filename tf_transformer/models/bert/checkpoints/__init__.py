"""Strict reading and writing of checkpoints from other libraries."""
