"""The command that explains what limits a run."""
