"""Scaled dot-product attention: the entry point, its plans, and masks."""
