"""Copies: the files of a run that go to other places, in blocks under checksums."""
