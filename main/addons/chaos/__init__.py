"""The command that tries faults on a run."""
