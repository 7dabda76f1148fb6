"""Lets agents of other machines join a run."""
