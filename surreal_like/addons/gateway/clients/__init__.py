"""Clients of a gateway: one file for each language, to be copied into any project."""
