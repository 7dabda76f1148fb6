"""Turns a config into a complete experiment, and checks it before the start."""
