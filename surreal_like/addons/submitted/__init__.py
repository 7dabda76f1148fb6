"""Submitted: the process of a job that runs the core."""
