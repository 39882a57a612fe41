"""Batches of ids and masks, as `bert.py` passes them to every peer."""


def as_batches(arrays, convert):
    """A list of (ids, mask), both converted from int32 arrays (B, T)."""
    return [
        (convert(arrays[f"ids{n}"]), convert(arrays[f"mask{n}"])) for n in range(len(arrays) // 2)
    ]
