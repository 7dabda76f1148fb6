"""Engines that keep machines joined to a run or a tuning; each is one file."""
