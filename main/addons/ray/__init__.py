"""The command that is the job of a run on Ray."""
