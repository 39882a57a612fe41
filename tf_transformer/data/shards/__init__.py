"""Sentence pairs larger than memory: prepared once as shards of token ids, then read in order."""
