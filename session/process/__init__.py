"""Runs a component: its description, its process, its loop, its life signs."""
