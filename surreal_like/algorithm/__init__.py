"""Algorithms: one file each, found by name, by dotted path or as a user's own file."""
