"""Exploration: numbers that change over a run, and one degree of curiosity for each agent."""
