"""Slots of consecutive row numbers in a ring."""

from __future__ import annotations


def spans(first: int, rows: int, capacity: int) -> list[tuple[slice, slice]]:
    """Returns one or two pairs (slots of the ring, the part of the rows that lies there)."""
    slot = first % capacity
    fits = min(rows, capacity - slot)
    found = [(slice(slot, slot + fits), slice(0, fits))]
    if fits < rows:
        found.append((slice(0, rows - fits), slice(fits, rows)))
    return found
