"""Runs many trials of one experiment."""
