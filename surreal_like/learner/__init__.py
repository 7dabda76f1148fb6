"""Learners: the base class that algorithms extend, and the service around it."""
