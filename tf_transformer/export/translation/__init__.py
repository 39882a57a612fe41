"""Exported translators: strings to strings."""
