"""Launchers turn a topology into something that runs: this thread, processes of this machine."""
