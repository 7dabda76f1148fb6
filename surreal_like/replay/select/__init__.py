"""Selectors: the rows of the next batch, and the rows that make room for new ones."""
