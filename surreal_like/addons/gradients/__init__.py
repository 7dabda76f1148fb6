"""Gradients that agents compute and the learner applies, and the algorithm A3C."""
