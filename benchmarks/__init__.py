"""Comparisons with other libraries, and experiments: see README.md in this folder."""
