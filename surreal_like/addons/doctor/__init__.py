"""Explains what limits the speed of a run, and what is unusual in it."""
