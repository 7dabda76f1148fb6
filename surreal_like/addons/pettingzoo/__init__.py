"""Environments of several agents of PettingZoo and MPE2, by their names."""
