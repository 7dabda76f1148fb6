"""Agents: the base class that algorithms extend, and the services around it."""
