"""Tries faults on a run, and checks what must hold."""
