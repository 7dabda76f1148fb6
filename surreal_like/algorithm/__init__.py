"""Algorithms: one file each, found by name, by dotted path or as a file of one's own."""
