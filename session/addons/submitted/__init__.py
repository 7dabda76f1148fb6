"""Submitted: runs whose core is one job of another system, and whose agents join."""
