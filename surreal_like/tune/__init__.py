"""Tuning: a population of trials of one experiment, on this machine."""
